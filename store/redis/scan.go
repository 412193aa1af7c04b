package redis

import (
	"context"
	"math"
	"slices"

	goredis "github.com/redis/go-redis/v9"
)

// maxScanBatch is how many entries of an index are read at a time at most.
const maxScanBatch = 500

// scan reads an index, a sorted set, in the order of its scores.
type scan struct {
	client      goredis.UniversalClient
	purpose     string // for errors
	key         string
	lowest      string // the lowest score to read
	highest     string // the highest score to read
	newestFirst bool
	last        *goredis.Z // the entry read last
}

// next reads the entries after the last. Several may share a score, so the search
// begins at the last entry's score and skips what was read before.
func (s *scan) next(ctx context.Context, size int) ([]goredis.Z, error) {
	for ; ; size *= 2 {
		bounds := goredis.ZRangeArgs{Key: s.key, Start: s.lowest, Stop: s.highest, ByScore: true, Count: int64(size)}
		if s.newestFirst {
			bounds.Start, bounds.Stop, bounds.Rev = s.highest, s.lowest, true
		}
		if s.last != nil {
			bounds.Start = score(s.last.Score)
		}
		found, err := s.client.ZRangeArgsWithScores(ctx, bounds).Result()
		if err != nil {
			return nil, failure(s.purpose, err)
		}
		full := len(found) == size
		if s.last != nil {
			last := text(s.last.Member)
			found = slices.DeleteFunc(found, func(z goredis.Z) bool {
				member := text(z.Member)
				return z.Score == s.last.Score && (member == last || (member > last) == s.newestFirst)
			})
		}
		if len(found) > 0 {
			s.last = &found[len(found)-1]
			return found, nil
		}
		if !full || size > math.MaxInt32 {
			return nil, nil
		}
	}
}

// scanEach reads entries in batches, checks each batch, and yields what its entries stand
// for until yield returns false. Entries for which check returns nil are skipped.
func scanEach[T any](
	ctx context.Context, s *scan, size int, check func(context.Context, []goredis.Z) ([]*T, error), yield func(*T) bool,
) error {
	size = min(max(size, 1), maxScanBatch)
	for {
		entries, err := s.next(ctx, size)
		if err != nil || len(entries) == 0 {
			return err
		}
		batch, err := check(ctx, entries)
		if err != nil {
			return err
		}
		for _, item := range batch {
			if item != nil && !yield(item) {
				return nil
			}
		}
	}
}
