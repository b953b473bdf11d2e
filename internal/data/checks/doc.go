// Package checks runs the declared checks of an output over its files: all of them in one pass, with
// bounded memory. Checks that must remember values (unique, referential) write hashes of them to
// disk beyond a budget. It decides nothing: package quality has the gate.
package checks
