package run

import "strings"

// A capability is what a worker must have to run a task: exec, http, or a Go handler, as in
// "go:orders". Package asset gives the capability that an asset needs.

// NoCapability is declared by a worker that can run nothing: a worker that declares no capability
// at all can run everything.
const NoCapability = "none"

const goPrefix = "go:"

// GoCapability is the capability of a worker that has registered a Go handler.
func GoCapability(handler string) string { return goPrefix + handler }

// HandlerOf gives the Go handler of a capability; false if it is of another kind.
func HandlerOf(capability string) (handler string, isGo bool) {
	return strings.CutPrefix(capability, goPrefix)
}
