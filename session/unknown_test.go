package session

import "testing"

func TestUnknownFields(t *testing.T) {
	t.Parallel()
	known, part := map[string]bool{"id": true, "parts": true, "metadata": true}, map[string]bool{"kind": true, "input": true}
	for data, want := range map[string]bool{
		`{"id":"a","parts":[{"kind":"text","input":{"x":{"y":1}}},{"kind":"text"}]}`:                 false,
		`{"id":"a","parts":[{"kind":"text","colour":"red"}]}`:                                        true,
		`{"id":"a","parts":[{"kind":"text"},{"kind":"text","colour":"red"}]}`:                        true,
		`{"id":"a","colour":"red"}`:                                                                  true,
		`{"metadata":{"usage":{"model":"m","in":1},"list":["a","b"]},"parts":[{"kind":"text"}]}`:     false,
		`{"parts":[{"kind":"text"}],"metadata":{"usage":{"model":"m"}}}`:                             false,
		`{"metadata":{"usage":{"model":"m"}},"parts":[{"colour":"red"}]}`:                            true,
		`{"parts":[{"kind":"text"}],"metadata":{"usage":{"model":"m"}},"colour":{"kind":{"x":"y"}}}`: true,
	} {
		if got := hasUnknown([]byte(data), known, part); got != want {
			t.Errorf("%s has unknown fields: %t, want %t", data, got, want)
		}
	}
}
