// Package layering holds no code, only tests: imports point down only, and tests do not wait for a time without a reason.
//
// The first asks the go command for the import graph of the module and checks it against the table in layering_test.go,
// which is the layer diagram of ARCHITECTURE.md in a form that can fail. A package that is in no layer fails too, so a
// new package is placed on purpose. The test also follows every import, direct or not, of the packages that each
// application compiles (the module root, engine and runtime/local) and fails when a third-party module beyond the
// allowed few is among them: heavy dependencies live in leaves. The same holds for store/internal/lite, the SQL that
// stores with different drivers share: no third-party module, and so no driver, is below it.
//
// Only imports of the product count. A _test.go file may import upward, as an external test or an executed example has
// to. Files that the current platform leaves out are not seen. Run the test with -count=1, as make lint does: what the go
// command reads is invisible to Go's test cache.
//
// The second reads the source of all tests and suites, see waits_test.go.
package layering
