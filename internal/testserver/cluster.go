package testserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/helixagents/helix/internal/eventually"
)

const (
	clusterNodes = 3
	clusterSlots = 16384
)

// startCluster starts three nodes and shares the slots out among them.
func startCluster(ctx context.Context) (url string, nodes []*server, err error) {
	settings := append([]string{"cluster-enabled=yes"}, sharedRedisSettings...)
	for range clusterNodes {
		node, err := startRedis(ctx, settings)
		if err != nil {
			return "", nil, errors.Join(err, closeAll(nodes))
		}
		nodes = append(nodes, node)
	}
	if err := joinCluster(ctx, nodes); err != nil {
		return "", nil, errors.Join(err, closeAll(nodes))
	}
	url = nodes[0].url()
	for i, node := range nodes[1:] {
		url += []string{"?", "&"}[min(i, 1)] + "addr=" + node.addr()
	}
	return url, nodes, nil
}

// joinCluster does what redis-cli --cluster create does, without needing redis-cli.
func joinCluster(ctx context.Context, nodes []*server) error {
	for i, node := range nodes {
		commands := []string{
			// Different epochs from the start, or the nodes would take their time to agree on them.
			"CLUSTER SET-CONFIG-EPOCH " + strconv.Itoa(i+1),
			"CLUSTER ADDSLOTS" + slots(i*clusterSlots/len(nodes), (i+1)*clusterSlots/len(nodes)),
		}
		for _, other := range nodes[:i] {
			commands = append(commands, "CLUSTER MEET 127.0.0.1 "+strconv.Itoa(other.place.port))
		}
		for _, command := range commands {
			if _, err := askRedis(ctx, node.addr(), command); err != nil {
				return fmt.Errorf("join a redis cluster: %.40s: %w", command, err)
			}
		}
	}
	for _, node := range nodes {
		if err := awaitCluster(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

func slots(from, to int) string {
	var list strings.Builder
	for slot := from; slot < to; slot++ {
		list.WriteByte(' ')
		list.WriteString(strconv.Itoa(slot))
	}
	return list.String()
}

// awaitCluster waits until a node knows all the others and who has which slots.
func awaitCluster(ctx context.Context, node *server) error {
	ctx, cancel := context.WithTimeout(ctx, eventually.Patience)
	defer cancel()
	var info string
	var err error
	late := eventually.PollContext(ctx, func() bool {
		info, err = askRedis(ctx, node.addr(), "CLUSTER INFO")
		return err == nil && strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", clusterNodes))
	})
	if late != nil {
		return fmt.Errorf("redis cluster not ready: %w\n%s\nthe log of %s ends with:\n%s", errors.Join(late, err), info, node.addr(), node.logTail())
	}
	return nil
}
