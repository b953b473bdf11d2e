//go:build !linux

package worker

// Hide does nothing: other systems show the environment of a process to its own user in ways that a
// process cannot close.
func Hide(...string) error { return nil }
