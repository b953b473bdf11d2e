package asset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

// violations collects errors, one for each field: the first error of a field is the one to fix, and
// later ones may only follow from it.
type violations struct {
	code   fault.Code // of errors without their own code
	list   []fault.Violation
	fields map[string]bool
	broken []string // paths whose values are not objects: their fields are not checked
	more   int
}

func newViolations(code fault.Code) *violations {
	return &violations{code: code, fields: map[string]bool{}}
}

func (v *violations) add(field, message, remedy string) {
	v.addCode(v.code, field, message, remedy)
}

func (v *violations) addCode(code fault.Code, field, message, remedy string) {
	if v.full() {
		v.more++
		return
	}
	if v.fields[field] || slices.ContainsFunc(v.broken, func(path string) bool { return strings.HasPrefix(field, path+".") }) {
		return
	}
	v.fields[field] = true
	v.list = append(v.list, fault.Violation{Code: code, Field: field, Message: message, Remedy: remedy})
}

// full reports whether the limit is reached, so that the search for suggestions can stop.
func (v *violations) full() bool { return len(v.list) >= maxViolations }

func (v *violations) err() error {
	list := v.list
	if v.more > 0 {
		list = append(list, fault.Violation{
			Code: v.code, Message: fmt.Sprintf("%d more errors are not shown", v.more),
			Remedy: "fix these first",
		})
	}
	return fault.FromViolations(list)
}

// tooMany is the message for a list over its limit.
func tooMany(n, limit int) string { return fmt.Sprintf("has %d entries, the limit is %d", n, limit) }

// clip shortens a user's text for a message.
func clip(text string) string {
	const longest = 80
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// quoted makes a user's text safe to print, and short.
func quoted(text string) string { return strconv.Quote(clip(text)) }

// assetPath names an asset by its key, or by its index if the key is invalid.
func assetPath(i int, key string) string {
	if keyPattern.MatchString(key) {
		return "assets[" + key + "]"
	}
	return at("assets", i)
}

// pipelinePath names a pipeline by its name, or by its index.
func pipelinePath(i int, name string) string {
	if namePattern.MatchString(name) {
		return "pipelines[" + name + "]"
	}
	return at("pipelines", i)
}

// parameterPath names a parameter of a pipeline by its name, or by its index.
func parameterPath(pipeline string, i int, name string) string {
	if parameterPattern.MatchString(name) {
		return pipeline + ".parameters[" + name + "]"
	}
	return at(pipeline+".parameters", i)
}

// at is the path of a list's entry.
func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
