package run

import "strings"

// A capability is what a worker needs to execute a task: exec, http, a Go handler, as in
// "go:orders", or Python code, as in "python:gold/revenue" or "python:sha256:…". Tasks with an output or
// checks need the same with "output:" before it, and with "sql:output:" if a check is a query. Package asset has the capability that an asset needs.

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
	return strings.CutPrefix(codeOf(capability), goPrefix)
}

// PythonCapability is the capability of a worker that has a Python asset, or Python code with a digest.
func PythonCapability(assetOrCode string) string { return pythonPrefix + assetOrCode }

// PythonOf returns the Python asset or code of a capability; false for other kinds.
func PythonOf(capability string) (assetOrCode string, isPython bool) {
	return strings.CutPrefix(codeOf(capability), pythonPrefix)
}

const (
	outputPrefix = "output:"
	sqlPrefix    = "sql:"
)

// codeOf returns the part of a capability that names the code.
func codeOf(capability string) string {
	return strings.TrimPrefix(strings.TrimPrefix(capability, sqlPrefix), outputPrefix)
}

// OutputCapability is the capability of a worker that can also commit the outputs of such tasks.
func OutputCapability(capability string) string { return outputPrefix + capability }

// NeedsOutput reports whether a capability includes outputs.
func NeedsOutput(capability string) bool { return strings.HasPrefix(capability, outputPrefix) }

// SQLCapability is the capability of a worker that can also run queries over such outputs.
func SQLCapability(capability string) string { return sqlPrefix + OutputCapability(capability) }

// WithoutSQL returns a capability without its queries; false if it includes none.
func WithoutSQL(capability string) (output string, hadSQL bool) {
	return strings.CutPrefix(capability, sqlPrefix)
}
