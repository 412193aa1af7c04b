// Package onservers is the parent of packages that have nothing but tests: they run the suites of the engine and of the local
// runtime on Postgres, Redis and Redis Cluster. The packages themselves run them in memory and on SQLite, where nothing waits
// for another process.
package onservers
