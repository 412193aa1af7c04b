package lite

import (
	"database/sql/driver"
	"math"
	"testing"
	"time"
)

func TestUnit(t *testing.T) {
	t.Parallel()
	at := time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.FixedZone("east", 3600))
	for name, test := range map[string]struct {
		unit Unit
		at   any
		want driver.Value
		back time.Time
	}{
		"nanoseconds":             {Nanoseconds, at, at.UnixNano(), at.UTC()},
		"microseconds":            {Unit(time.Microsecond), at, at.UnixMicro(), at.UTC().Truncate(time.Microsecond)},
		"rounded down":            {Unit(time.Microsecond), time.Unix(-1, 1500), int64(-999_999), time.Unix(-1, 1000).UTC()},
		"rounded up":              {Unit(time.Microsecond), bound(time.Unix(-1, 1500)), int64(-999_998), time.Unix(-1, 2000).UTC()},
		"not rounded":             {Unit(time.Microsecond), bound(time.Unix(-1, 2000)), int64(-999_998), time.Unix(-1, 2000).UTC()},
		"a bound in a file":       {Nanoseconds, bound(at), at.UnixNano(), at.UTC()},
		"no time":                 {Nanoseconds, time.Time{}, nil, time.Time{}},
		"before the first number": {Nanoseconds, time.Unix(-1<<40, 0), int64(math.MinInt64), time.Unix(0, math.MinInt64).UTC()},
		"after the last number":   {Nanoseconds, time.Unix(1<<40, 0), int64(math.MaxInt64), time.Unix(0, math.MaxInt64).UTC()},
		"the beginning of 1970":   {Nanoseconds, time.Unix(0, 0), int64(0), time.Unix(0, 0).UTC()},
	} {
		got := test.unit.Value(test.at)
		if got != test.want {
			t.Errorf("%s: stored as %v, want %v", name, got, test.want)
		}
		if back := NewRow([]driver.Value{got}, test.unit).Time(); back != test.back {
			t.Errorf("%s: read back as %v, want %v", name, back, test.back)
		}
	}
}
