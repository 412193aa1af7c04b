package backend

import "testing"

func TestRedacted(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://u:word@host/db?schema=s":                        "postgres://u:xxxxx@host/db?schema=s",
		"postgres://host/db?user=u&password=word&schema=s":          "postgres://host/db?user=u&password=xxxxx&schema=s",
		"postgres://host/db?pass%77ord=word&SSLPassword=w&%zz=word": "postgres://host/db?pass%77ord=xxxxx&SSLPassword=xxxxx&%zz=xxxxx",
		"postgres://u:p@word@host:port/db":                          "postgres:…",
		"postgres:u:word@host":                                      "postgres:…",
		"redis://:word@host:6379":                                   "redis://:xxxxx@host:6379",
		"memory:":                                                   "memory:",
	} {
		if got := Redacted(address); got != want {
			t.Errorf("%s is shown as %s, want %s", address, got, want)
		}
	}
}
