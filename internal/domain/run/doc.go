// Package run defines the lifecycle of runs and tasks: which transitions exist, what each command
// decides, and how an event changes a row. It is pure: time, tokens and ids are arguments; the
// package reads no clock, no database and no random numbers.
//
// Decide takes a task and a command, and returns events or a fault. Evolve applies an event to the
// row. Live writes and rebuilds both use Evolve, so a rebuilt table equals the live one by
// construction.
package run
