package testserver

import "context"

// DurablePostgres starts a Postgres server for a program that is no test, and returns its URL. What it has acknowledged is
// on the disk: fsync is on. stop ends it.
func DurablePostgres(ctx context.Context) (url string, stop func() error, err error) {
	return started(startPostgres(ctx, nil))
}

// DurableRedis starts a Redis server for a program that is no test, and returns its URL. What it has acknowledged is on the
// disk: its append-only file is synced on every write. stop ends it.
func DurableRedis(ctx context.Context) (url string, stop func() error, err error) {
	return started(startRedis(ctx, nil))
}

func started(s *server, err error) (url string, stop func() error, _ error) {
	if err != nil {
		return "", nil, err
	}
	return s.url(), s.close, nil
}

// DurableTemporal starts a Temporal server for a program that is no test, and returns its address. It keeps its data in a
// file. stop ends it.
func DurableTemporal(ctx context.Context) (addr string, stop func() error, err error) {
	return started(startTemporal(ctx, true, nil))
}
