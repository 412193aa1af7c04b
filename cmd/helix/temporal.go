package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"

	"github.com/helixagents/helix"
	"github.com/helixagents/helix/config"
	"github.com/helixagents/helix/runtime/temporal"
)

const (
	temporalAddress   = "127.0.0.1:7233"
	temporalNamespace = "default"
	temporalQueue     = "helix"
)

// temporalPatience is how long to wait for the Temporal server at startup.
const temporalPatience = 10 * time.Second

// onTemporal is a runtime that owns its connection.
type onTemporal struct {
	*temporal.Runtime
	client client.Client
}

// Shutdown also closes the connection.
func (r *onTemporal) Shutdown(ctx context.Context) error {
	defer r.client.Close()
	return r.Runtime.Shutdown(ctx)
}

// Close also closes the connection.
func (r *onTemporal) Close() error {
	defer r.client.Close()
	return r.Runtime.Close()
}

func (p *place) startTemporal(ctx context.Context) (helix.Runtime, string, error) {
	t := &p.settings.Temporal
	options, err := temporalOptions(t)
	if err != nil {
		return nil, "", err
	}
	options.Logger = log.NewStructuredLogger(p.log)
	c, err := dialTemporal(ctx, options)
	if err != nil {
		return nil, "", err
	}
	queue := cmp.Or(t.TaskQueue, temporalQueue)
	works := !p.passing && (t.Worker == nil || *t.Worker)
	rt, err := temporal.New(temporal.Config{
		RuntimeOptions: p.options(), Client: c, TaskQueue: queue, Prefix: t.Prefix, NoWorker: !works,
		WorkerTimeout: time.Duration(t.WorkerTimeout), MaxEffects: t.MaxEffects,
	})
	if err != nil {
		c.Close()
		return nil, "", err
	}
	where := fmt.Sprintf("Temporal at %s, namespace %s, task queue %s", options.HostPort, options.Namespace, queue)
	if !works {
		where += "; workers run the turns"
	}
	return &onTemporal{rt, c}, where, nil
}

// temporalOptions returns the connection options: the settings, and for the rest the
// variables and the file that Temporal's own programs use.
func temporalOptions(t *config.Temporal) (client.Options, error) {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
	if err != nil {
		return client.Options{}, fmt.Errorf("read Temporal's settings from the environment: %w", err)
	}
	profile.Address = cmp.Or(t.Address, profile.Address, temporalAddress)
	profile.Namespace = cmp.Or(t.Namespace, profile.Namespace, temporalNamespace)
	profile.APIKey = cmp.Or(t.APIKey, profile.APIKey)
	options, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return options, fmt.Errorf("read Temporal's settings from the environment: %w", err)
	}
	return options, nil
}

// dialTemporal connects and checks that the namespace exists. Without the check a server
// would start, but its turns would not.
func dialTemporal(ctx context.Context, options client.Options) (client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, temporalPatience)
	defer cancel()
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("cannot reach Temporal at %s: %w", options.HostPort, err)
	}
	_, err = c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: options.Namespace})
	if _, missing := errors.AsType[*serviceerror.NamespaceNotFound](err); missing {
		err = fmt.Errorf("no namespace %q in Temporal at %s", options.Namespace, options.HostPort)
	} else if err != nil {
		err = fmt.Errorf("no answer for namespace %q from Temporal at %s: %w", options.Namespace, options.HostPort, err)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
