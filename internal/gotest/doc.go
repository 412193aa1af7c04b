// Command gotest runs "go test" and decides what becomes of tests that failed:
//
//	gotest [flags] PACKAGE... -- [flag of go test]...
//
// It prints a line for every package, what failed tests have written, and at the end how many tests passed.
//
// A test may have failed because the machine was busy. gotest runs each of up to five such tests again, alone, and accepts
// the run if it passes three times. It accepts nothing that a busy machine does not explain: a data race, a panic or another
// crash, a test that did not end, a package that failed although none of its tests did (a leaked goroutine, an exit, a
// timeout), a package that does not build. Races and crashes of processes that a test started count as its own.
//
// The last thing that gotest prints is the list of tests that had a second try. Each of them is a fault, of the test or of
// the product.
package main
