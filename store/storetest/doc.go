// Package storetest is the conformance suite of a backend. Every backend passes the
// same cases, those of this module and yours.
//
// # Running it
//
// A backend's test file says how to open one and what it can do:
//
//	func TestBackend(t *testing.T) {
//		storetest.Run(t, open)
//	}
//
//	func BenchmarkBackend(b *testing.B) {
//		storetest.Benchmarks(b, open)
//	}
//
//	func open(t testing.TB) storetest.Harness {
//		path := filepath.Join(t.TempDir(), "data")
//		clock := storetest.NewClock()
//		connect := func(t testing.TB) store.Backend {
//			b, err := mine.Open(path, mine.Config{Now: clock.Now})
//			if err != nil {
//				t.Fatal(err)
//			}
//			t.Cleanup(func() { b.Close() })
//			return b
//		}
//		return storetest.Harness{
//			Backend:    connect(t),
//			Reopen:     connect,
//			Persistent: true,
//			Advance:    clock.Advance,
//		}
//	}
//
// Every case is a subtest with a description that is printed when it fails. What
// a backend cannot do it does not declare; the cases that need it are skipped,
// and say so.
//
// # Faults
//
// [Faults] wraps any backend and makes chosen writes fail, before or after they
// are made. The suite uses it on the store; tests of runtimes use it to stop a
// turn around every write.
package storetest
