package run

import "strings"

// A capability is what a worker needs to execute a task: exec, http, a Go handler, as in
// "go:orders", or Python code, as in "python:gold/revenue" or "python:sha256:…". Tasks with an output or
// checks need the same with "output:" before it. Package asset has the capability that an asset needs.

// NoCapability is declared by a worker that can execute nothing, because a worker that declares no
// capability can execute everything.
const NoCapability = "none"

const (
	goPrefix     = "go:"
	pythonPrefix = "python:"
)

// GoCapability is the capability of a worker that has registered a Go handler.
func GoCapability(handler string) string { return goPrefix + handler }

// HandlerOf returns the Go handler of a capability; false for other kinds.
func HandlerOf(capability string) (handler string, isGo bool) {
	return strings.CutPrefix(strings.TrimPrefix(capability, outputPrefix), goPrefix)
}

// PythonCapability is the capability of a worker that has a Python asset, or Python code with a digest.
func PythonCapability(assetOrCode string) string { return pythonPrefix + assetOrCode }

// PythonOf returns the Python asset or code of a capability; false for other kinds.
func PythonOf(capability string) (assetOrCode string, isPython bool) {
	return strings.CutPrefix(strings.TrimPrefix(capability, outputPrefix), pythonPrefix)
}

const outputPrefix = "output:"

// OutputCapability is the capability of a worker that can also commit the outputs of such tasks.
func OutputCapability(capability string) string { return outputPrefix + capability }

// NeedsOutput reports whether a capability includes outputs.
func NeedsOutput(capability string) bool { return strings.HasPrefix(capability, outputPrefix) }
