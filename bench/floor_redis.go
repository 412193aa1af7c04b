package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/helixagents/helix/store/redis"
)

// redisChunks is what a commit with chunks ends with: the chunks, how far their
// producer has come, and the message to readers. The last KEYS are stream and
// chunks. ARGV, from a place on: channel, last, updated, producer's field, producer,
// then for each chunk its id, producer, epoch, number, time, bytes.
func redisChunks(from int) string {
	return fmt.Sprintf(`
for i = %d, #ARGV, 6 do
  redis.call('XADD', KEYS[#KEYS], ARGV[i], 'p', ARGV[i + 1], 'e', ARGV[i + 2], 'n', ARGV[i + 3], 't', ARGV[i + 4], 'c', ARGV[i + 5])
end
redis.call('HSET', KEYS[#KEYS - 1], 'last', ARGV[%d], 'updated', ARGV[%d], ARGV[%d], ARGV[%d])
redis.call('PUBLISH', ARGV[%d], '1')
`, from+5, from+1, from+2, from+3, from+4, from)
}

// The scripts that write what a commit writes. Keys and values come ready from the
// client.
var (
	// KEYS: header, messages, metas, ids, calls. ARGV: version, commit, time, usage,
	// number of messages, body, meta, id, then the fields of the call.
	redisReply = goredis.NewScript(`
redis.call('RPUSH', KEYS[2], ARGV[6])
redis.call('RPUSH', KEYS[3], ARGV[7])
redis.call('HSET', KEYS[4], ARGV[8], ARGV[5])
redis.call('HSET', KEYS[5], unpack(ARGV, 9, 18))
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'commit', ARGV[2], 'updated', ARGV[3], 'usage', ARGV[4], 'msgs', ARGV[5])
` + redisChunks(19))

	// What a commit with a checkpoint begins with.
	// KEYS: header, messages, metas, ids, points, rows of points. ARGV: version,
	// commit, time, usage, number of messages, step, checkpoint, its number, its row.
	redisPoint = `
redis.call('RPUSH', KEYS[6], ARGV[9])
redis.call('HSET', KEYS[5], 'i' .. ARGV[7], ARGV[8])
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'commit', ARGV[2], 'updated', ARGV[3], 'usage', ARGV[4], 'msgs', ARGV[5],
  'steps', ARGV[6], 'rsteps', ARGV[6], 'cp', ARGV[7], 'cpn', ARGV[8], 'cpsrc', 'staging', 'cpat', ARGV[3])
`

	// Then KEYS: calls. ARGV: body, meta, id, then the fields of the call.
	redisResults = goredis.NewScript(redisPoint + `
redis.call('RPUSH', KEYS[2], ARGV[10])
redis.call('RPUSH', KEYS[3], ARGV[11])
redis.call('HSET', KEYS[4], ARGV[12], ARGV[5])
redis.call('HDEL', KEYS[7], unpack(ARGV, 13, 17))
` + redisChunks(18))

	// Then KEYS: state. ARGV: the writes and what they add up to, before the fields of
	// the call.
	redisGrowing = goredis.NewScript(redisPoint + `
redis.call('RPUSH', KEYS[2], ARGV[10])
redis.call('RPUSH', KEYS[3], ARGV[11])
redis.call('HSET', KEYS[4], ARGV[12], ARGV[5])
redis.call('XADD', KEYS[8], ARGV[1] .. '-0', 'b', ARGV[13])
redis.call('HSET', KEYS[1], 'delta', ARGV[14])
redis.call('HDEL', KEYS[7], unpack(ARGV, 15, 19))
` + redisChunks(20))

	// Then ARGV: body, meta, id, number of the one message, and of the other.
	redisMessages = `
redis.call('RPUSH', KEYS[2], ARGV[10], ARGV[14])
redis.call('RPUSH', KEYS[3], ARGV[11], ARGV[15])
redis.call('HSET', KEYS[4], ARGV[12], ARGV[13], ARGV[16], ARGV[17])
`
	redisBoth  = goredis.NewScript(redisPoint + redisMessages)
	redisWhole = goredis.NewScript(redisPoint + redisMessages + redisChunks(18))

	// KEYS: header. ARGV: version, time.
	redisBare = goredis.NewScript(`
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'updated', ARGV[2])
`)
)

// redisFloor writes what a commit and its chunks write with one script, over a
// client like the backend's. Nothing is read and nothing is checked.
//
// A step is two scripts, each of which is a round trip and a write of the server's
// log. Less would not do: that a call has begun must be durable before its tool
// runs, and its result can only be written afterwards. A step whose calls have no
// effect is one.
type redisFloor struct {
	payload
	backend *redis.Backend // makes the sessions to write to
	client  *goredis.Client
	prefix  string
	leave   func() error // before the client is closed
}

func newRedisFloor(ctx context.Context, url, prefix string) (*redisFloor, error) {
	options, err := goredis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	// As the backend has it.
	options.MaxRetries = -1
	options.Protocol = 2
	options.ContextTimeoutEnabled = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	backend, err := redis.OpenConfig(redis.Config{URL: url, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	f := &redisFloor{payload: newPayload(), backend: backend, client: goredis.NewClient(options), prefix: prefix}
	for _, script := range []*goredis.Script{redisReply, redisResults, redisGrowing, redisWhole, redisBoth, redisBare} {
		if err := script.Load(ctx, f.client).Err(); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

func (f *redisFloor) begin(ctx context.Context, id string) error {
	_, err := beginSession(ctx, f.backend, id)
	return err
}

// slot is what the keys of a session begin with, and the channel of its stream.
func (f *redisFloor) slot(id string) string { return f.prefix + ":{default/" + id + "}:" }

// under names keys of a session by their letters.
func (f *redisFloor) under(id, letters string) []string {
	out := make([]string, len(letters))
	for i := range letters {
		out[i] = f.slot(id) + letters[i:i+1]
	}
	return out
}

func (f *redisFloor) run(ctx context.Context, script *goredis.Script, id, letters string, args []any) error {
	err := f.client.EvalSha(ctx, script.Hash(), f.under(id, letters), args...).Err()
	if errors.Is(err, goredis.Nil) {
		return nil // the script answers nothing
	}
	return err
}

// chunksUpTo are the arguments of redisChunks, for chunks up to a sequence.
func (f *redisFloor) chunksUpTo(id string, last int, chunks [][]byte) []any {
	now := time.Now().UnixMicro()
	args := []any{f.slot(id) + "changed", last, now, "p" + id, "1 " + strconv.Itoa(last)}
	for i, chunk := range chunks {
		number := last - len(chunks) + 1 + i
		args = append(args, strconv.Itoa(number)+"-0", id, 1, number, now, chunk)
	}
	return args
}

const redisUsage = "0 0 0 0 0 1 1"

// callRow is what begins the fields of a step's call.
func callRow(names names) string { return names.message + "\x00" + floorCall + "\x00" }

func (f *redisFloor) reply(ctx context.Context, id string, n int) error {
	names, now := namesOf(n), time.Now().UnixMicro()
	row := callRow(names)
	args := []any{
		2 * n, names.model, now, redisUsage, floorMessages*n + 1, f.assistant, assistantMeta(names), names.message,
		row + "n", 0, row + "s", "begun", row + "d", f.call, row + "a", now, row + "b", now,
	}
	return f.run(ctx, redisReply, id, "hmxitSX", append(args, f.chunksUpTo(id, floorChunks*n+len(f.replyChunks), f.replyChunks)...))
}

func assistantMeta(names names) string { return names.message + "\x00assistant\x00" + floorCall }

// point is the arguments of what a commit with a checkpoint begins with.
func (f *redisFloor) point(n int, names names) []any {
	now, messages := strconv.FormatInt(time.Now().UnixMicro(), 10), strconv.Itoa(floorMessages*(n+1))
	row := messages + "\x00" + names.checkpoint + "\x00" + floorRun + "\x001\x00" + strconv.Itoa(n) + "\x00active\x00staging\x00" +
		strconv.Itoa(2*n+1) + "\x00" + strconv.Itoa(floorChunks*(n+1)) + "\x00" + now
	return []any{2*n + 1, names.commit, now, redisUsage, messages, n, names.checkpoint, n + 1, row}
}

func (f *redisFloor) results(ctx context.Context, id string, n int, growing bool) error {
	names := namesOf(n)
	script, letters, args := redisResults, "hmxicpt", append(f.point(n, names), f.tool, names.result+"\x00tool", names.result)
	if growing {
		script, letters, args = redisGrowing, letters+"s", append(args, floorWrites, (n+1)*len(floorWrites))
	}
	row := callRow(names)
	args = append(args, row+"n", row+"s", row+"d", row+"a", row+"b")
	return f.run(ctx, script, id, letters+"SX", append(args, f.chunksUpTo(id, floorChunks*(n+1), f.chunks(growing))...))
}

func (f *redisFloor) whole(ctx context.Context, id string, n int) error {
	return f.run(ctx, redisWhole, id, "hmxicpSX", append(f.bothArgs(n), f.chunksUpTo(id, floorChunks*(n+1), f.wholeChunks)...))
}

func (f *redisFloor) both(ctx context.Context, id string, n int) error {
	return f.run(ctx, redisBoth, id, "hmxicp", f.bothArgs(n))
}

func (f *redisFloor) bothArgs(n int) []any {
	names := namesOf(n)
	return append(f.point(n, names),
		f.assistant, assistantMeta(names), names.message, floorMessages*n+1,
		f.tool, names.result+"\x00tool", names.result, floorMessages*(n+1))
}

func (f *redisFloor) bare(ctx context.Context, id string, n int) error {
	return f.run(ctx, redisBare, id, "h", []any{n, time.Now().UnixMicro()})
}

func (f *redisFloor) Close() error {
	err := f.backend.Close()
	if f.leave != nil {
		err = errors.Join(err, f.leave())
	}
	return errors.Join(err, f.client.Close())
}
