// Package run is the life of runs and tasks: which transitions exist, what each command
// decides, and how an event changes a row. It is pure: time, tokens and ids come in as
// arguments, nothing here reads a clock, a database or a random number.
//
// A command meets a task in Decide, which answers with events or a refusal. Evolve folds
// an event into the row. Live writes and rebuilds both use Evolve, so a rebuilt table
// equals the live one by construction.
package run
