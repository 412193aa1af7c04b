// Command gotest runs "go test" and decides what becomes of tests that failed:
//
//	gotest [flags] PACKAGE... -- [flag of go test]...
//
// It divides the packages into tiers, runs these one after the other, and ends at one that fails. It prints a line for every
// package, what failed tests have written, and at the end what each tier took and how many tests passed.
//
// A test that waits for servers or other processes may have failed because the machine was busy. gotest runs each of up to
// five such tests of a tier again, alone, and accepts the run if it passes three times. In the first tier, whose tests wait
// for nobody, no test has a second try. It accepts nothing that a busy machine does not explain: a data race, a panic or another
// crash, a test that did not end, a package that failed although none of its tests did (a leaked goroutine, an exit, a
// timeout), a package that does not build. Races and crashes of processes that a test started count as its own.
//
// At the end gotest prints the list of tests that had a second try. Each of them is a fault, of the test or of
// the product.
//
// With -quarantine it passes over the tests in a file, and names them at the end.
//
// With -stress it runs one test of one package many times while the machine has too much to do, and counts how often it
// passed.
package main
