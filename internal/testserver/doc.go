// Package testserver gives tests real servers: Postgres, PgBouncer, Redis, a Redis Cluster of three nodes, Temporal, and
// aimock, which answers like the providers of models.
//
// [Postgres], [Redis], [RedisCluster] and [Temporal] return the address of a server that all tests of a process share; tests
// keep apart by schema, by key prefix, by task queue. The address comes from the environment (HELIX_TEST_POSTGRES,
// HELIX_TEST_REDIS, HELIX_TEST_REDIS_CLUSTER, HELIX_TEST_TEMPORAL) where make test has set it; otherwise the first test that
// asks starts a server for this process. A package that uses them says so in its TestMain, so that the servers are stopped at
// the end:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Main(m)) }
//
// [StartPostgres], [StartPgBouncer], [StartRedis] and [StartTemporal] start a server for one test, which may kill it, pause it
// and start it again; so does [StartAIMock]. [DurablePostgres] and [DurableRedis] start one for a program that is no test.
//
// Programs are looked for among the installed ones. If there are none they are fetched as Debian packages and unpacked into
// a cache directory, which needs no root and leaves the system as it was; failing that, all but PgBouncer, which has no
// image of its own, run in Docker. A test whose server cannot be had fails and says what to install. With
// HELIX_TEST_SKIP_SERVERS=1 nothing is fetched, and the test is skipped instead.
//
// Temporal is in no distribution: where it is not installed, Go builds it into the same cache, once, which takes minutes.
// What make test starts does not wait for that, and neither do tests that need no Temporal; see [Environment].
//
// What is written for Node.js comes from npm into the same cache, at the versions of a lock file in the tree; see
// [NodePackages]. It needs Node.js and npm installed.
//
// Servers listen on 127.0.0.1 only, keep their data in a directory of their own, and end with the process that started them,
// even if it crashes.
package testserver
