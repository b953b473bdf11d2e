package asset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

// violations collects broken rules. One field is told once: the first mistake found in it
// is the one to mend, and what follows from it would be noise.
type violations struct {
	code   fault.Code // of everything that has no code of its own
	list   []fault.Violation
	fields map[string]bool
	broken []string // objects that are none: nothing can be said about their fields
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

// full says that no more mistakes are kept, so that looking for suggestions can stop.
func (v *violations) full() bool { return len(v.list) >= maxViolations }

func (v *violations) err() error {
	list := v.list
	if v.more > 0 {
		list = append(list, fault.Violation{
			Code: v.code, Message: fmt.Sprintf("%d more mistakes are not shown", v.more),
			Remedy: "mend these first",
		})
	}
	return fault.FromViolations(list)
}

// tooMany is the message for a list over its limit.
func tooMany(n, limit int) string { return fmt.Sprintf("has %d entries, the limit is %d", n, limit) }

// clip makes foreign text short enough for a message.
func clip(text string) string {
	const longest = 80
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// quoted makes foreign text safe to print, and short.
func quoted(text string) string { return strconv.Quote(clip(text)) }

// assetPath names an asset by its key, or by its place while the key is no key.
func assetPath(i int, key string) string {
	if keyPattern.MatchString(key) {
		return "assets[" + key + "]"
	}
	return at("assets", i)
}

// pipelinePath names a pipeline by its name, or by its place.
func pipelinePath(i int, name string) string {
	if namePattern.MatchString(name) {
		return "pipelines[" + name + "]"
	}
	return at("pipelines", i)
}

// parameterPath names a parameter of a pipeline by its name, or by its place.
func parameterPath(pipeline string, i int, name string) string {
	if parameterPattern.MatchString(name) {
		return pipeline + ".parameters[" + name + "]"
	}
	return at(pipeline+".parameters", i)
}

// at is the path of a list's entry.
func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
