package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/helixagents/helix/session"
)

// protocol is the version of RESP. With the later one the client checks for
// notifications before every answer, and nobody here waits for any.
const protocol = 2

// minimum is the oldest version of the server that supports the scripts.
const minimum = 7

// connect returns a client of a server or cluster after checking that it can be
// used. It writes nothing.
func connect(ctx context.Context, config *Config) (goredis.UniversalClient, error) {
	client := config.Client
	where := "redis"
	if client == nil {
		silence()
		var err error
		if client, where, err = dial(ctx, config); err != nil {
			return nil, err
		}
	}
	err := inspect(ctx, client, config)
	if err == nil {
		return client, nil
	}
	if config.Client == nil {
		err = errors.Join(err, client.Close())
	}
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		err = session.ErrUnavailable.WithMessage("no answer within %s; check the address, and that no firewall blocks it", config.ConnectTimeout)
	}
	return nil, failure("open "+where, err)
}

// silence disables the logging of the client's package, the first time it is
// called.
var silence = sync.OnceFunc(func() { goredis.SetLogger(silent{}) })

// silent is a logger that drops everything.
type silent struct{}

// Printf implements the logger interface of the client's package.
func (silent) Printf(context.Context, string, ...any) {}

// dial returns a client for the URL. If it names one node of a cluster, the client
// is for the whole cluster.
func dial(ctx context.Context, config *Config) (client goredis.UniversalClient, where string, err error) {
	parsed, err := url.Parse(config.URL)
	if err != nil { // its text would show the password
		return nil, "", session.Invalid("redis url", "cannot be parsed; it must look like redis://user:password@host:port/db")
	}
	where = parsed.Redacted()
	if parsed.Query().Has("addr") {
		options, err := goredis.ParseClusterURL(config.URL)
		if err != nil {
			return nil, "", session.Invalid("redis url", "%s: %v", where, err)
		}
		return goredis.NewClusterClient(clusterOptions(options, config)), where, nil
	}
	options, err := goredis.ParseURL(config.URL)
	if err != nil {
		return nil, "", session.Invalid("redis url", "%s: %v", where, err)
	}
	single := goredis.NewClient(nodeOptions(options, config))
	info := single.Info(ctx, "cluster").Val() // the inspection reports what is wrong
	if !strings.Contains(info, "cluster_enabled:1") {
		return single, where, nil
	}
	cluster := goredis.NewClusterClient(clusterOptions(&goredis.ClusterOptions{
		Addrs: []string{options.Addr}, Username: options.Username, Password: options.Password, TLSConfig: options.TLSConfig,
		ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout, PoolSize: options.PoolSize,
	}, config))
	return cluster, where, single.Close()
}

// The client itself never sends anything twice: callers know what may be repeated.
// (A cluster's client does it nevertheless when a node fails; see tokens.)
func nodeOptions(o *goredis.Options, config *Config) *goredis.Options {
	o.MaxRetries = -1
	o.Protocol = protocol
	o.DialTimeout = config.ConnectTimeout
	o.DialerRetries = 1
	o.ReadTimeout = config.readTimeout(o.ReadTimeout)
	o.ContextTimeoutEnabled = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}

func clusterOptions(o *goredis.ClusterOptions, config *Config) *goredis.ClusterOptions {
	o.MaxRetries = -1
	o.Protocol = protocol
	o.DialTimeout = config.ConnectTimeout
	o.DialerRetries = 1
	o.ReadTimeout = config.readTimeout(o.ReadTimeout)
	o.ContextTimeoutEnabled = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}

// readTimeout returns how long an answer may take: longer than the wait for
// replicas.
func (c *Config) readTimeout(given time.Duration) time.Duration {
	if given == 0 && c.WaitReplicas > 0 {
		const usual = 3 * time.Second
		return c.WaitTimeout + usual
	}
	return given
}

// inspect checks every node that is written to, and loads the scripts there.
func inspect(ctx context.Context, client goredis.UniversalClient, config *Config) error {
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	cluster, ok := client.(*goredis.ClusterClient)
	if !ok {
		return inspectNode(ctx, client, config)
	}
	var one sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
		one.Lock()
		defer one.Unlock()
		return inspectNode(ctx, node, config)
	})
}

func inspectNode(ctx context.Context, node goredis.UniversalClient, config *Config) error {
	facts, err := facts(ctx, node)
	if err != nil {
		return err
	}
	if err := checkVersion(facts); err != nil {
		return err
	}
	if facts["role"] == "slave" {
		return permanent("the server is a read-only replica; connect to its primary, %s:%s", facts["master_host"], facts["master_port"])
	}
	if err := checkDurable(ctx, facts, config); err != nil {
		return err
	}
	for _, s := range scripts {
		if err := node.ScriptLoad(ctx, s.source).Err(); err != nil {
			return err
		}
	}
	return checkRights(ctx, node, config)
}

// facts returns what the server reports about itself.
func facts(ctx context.Context, node goredis.UniversalClient) (map[string]string, error) {
	out := map[string]string{}
	for _, section := range []string{"server", "replication", "memory", "persistence"} {
		info, err := node.Info(ctx, section).Result()
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(info) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				out[name] = value
			}
		}
	}
	return out, nil
}

func checkVersion(facts map[string]string) error {
	version := facts["redis_version"] // Valkey reports it, too: the version it is compatible with
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < minimum {
		return permanent("the server is Redis %s; Redis %d or newer, or Valkey 8, is required", version, minimum)
	}
	return nil
}

// checkDurable logs a warning, or returns an error, if the server may lose writes.
func checkDurable(ctx context.Context, facts map[string]string, config *Config) error {
	var faults []string
	if policy := facts["maxmemory_policy"]; policy != "noeviction" {
		faults = append(faults, fmt.Sprintf("its eviction policy is %s (set maxmemory-policy noeviction)", policy))
	}
	if facts["aof_enabled"] != "1" {
		faults = append(faults, "it has no append-only file (set appendonly yes)")
	}
	if len(faults) == 0 {
		return nil
	}
	if config.RequireDurable {
		return permanent("the server may lose sessions: %s", strings.Join(faults, " and "))
	}
	config.Logger.WarnContext(ctx, "the server may lose sessions", "because", strings.Join(faults, " and "))
	return nil
}

// checkRights asks the server, without executing them, whether the user may use
// all commands of the scripts.
func checkRights(ctx context.Context, node goredis.UniversalClient, config *Config) error {
	// A node of a cluster answers only for its own slots, whatever the slot of the
	// key, so a cluster is asked without a key where necessary.
	key := config.Prefix + ":{+list/probe}:all"
	denied, err := node.EvalSha(ctx, probe.sha, []string{key}, "p", "").Result()
	if goredis.HasErrorPrefix(err, "MOVED") {
		return nil
	}
	if err != nil {
		return err
	}
	var names []string
	for _, name := range list(denied) {
		names = append(names, text(name))
	}
	if len(names) == 0 {
		return nil
	}
	return permanent("the user may not use %s on keys that begin with %q; grant it +@read +@write +@scripting +@connection +info ~%s:* &%s:*",
		strings.Join(names, ", "), config.Prefix+":", config.Prefix, config.Prefix)
}

// permanent returns an error that lasts until an operator intervenes.
func permanent(format string, args ...any) error {
	out := session.ErrUnavailable.WithMessage(format, args...)
	out.Retryable = false
	return out
}
