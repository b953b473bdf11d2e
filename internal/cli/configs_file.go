package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// The limits of files with configs.
const (
	maxConfigFile  = 32 << 20
	maxConfigNodes = 100_000 // of one document, with its aliases expanded
	maxConfigs     = 100_000
	maxMistakes    = 50 // reported at once
)

// document is one config of a file.
type document struct {
	file      string
	number    int // from 1
	workspace string
	input     *servov1.ConfigInput
}

// place is the file and the number of a document.
func (d document) place() string { return fmt.Sprintf("%s, document %d", clean(d.file), d.number) }

// readConfigs reads all configs of a file, of the files below a directory, or of standard
// input, in the order of their names. All mistakes are reported at once.
func readConfigs(cmd *cobra.Command, name, workspace string) ([]document, error) {
	files, err := configFiles(cmd.Context(), name)
	if err != nil {
		return nil, err
	}
	r := &configReader{workspace: workspace, seen: map[string]string{}}
	for _, file := range files {
		data, err := readInput(cmd, "--file", file, maxConfigFile)
		if err != nil {
			return nil, err
		}
		r.read(file, data)
		if len(r.found) >= maxMistakes || len(r.documents) > maxConfigs {
			break
		}
	}
	if err := fault.FromViolations(r.found[:min(len(r.found), maxMistakes)]); err != nil {
		return nil, err
	}
	switch n := len(r.documents); {
	case n == 0:
		return nil, fault.New(fault.InvalidArgument, "no config is in "+name, fault.Field("--file"), fault.Remedy("give a file, or a directory with .yaml, .yml or .json files"))
	case n > maxConfigs:
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("more than %d configs are in %s", maxConfigs, name), fault.Field("--file"), fault.Remedy("apply parts of it"))
	}
	return r.documents, nil
}

// configFiles are the files that a name stands for.
func configFiles(ctx context.Context, name string) (files []string, err error) {
	if name == stdinName {
		return []string{name}, nil
	}
	root := environmentOf(ctx).path(name)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		ending := strings.ToLower(filepath.Ext(path))
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case !entry.IsDir() && (path == root || ending == ".yaml" || ending == ".yml" || ending == ".json"):
			files = append(files, filepath.Join(name, strings.TrimPrefix(path, root)))
		}
		return nil
	})
	if err != nil {
		return nil, unreadable("--file", name, err)
	}
	return files, nil
}

// configReader collects documents and their mistakes.
type configReader struct {
	workspace string            // of documents that name none
	seen      map[string]string // where each config is
	documents []document
	found     []fault.Violation
}

func (r *configReader) wrong(place, field, message, remedy string) {
	if field != "" {
		place += ": " + field
	}
	r.found = append(r.found, fault.Violation{Code: fault.InvalidArgument, Field: place, Message: message, Remedy: remedy})
}

func (r *configReader) read(file string, data []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(data)) // JSON is YAML
	for number := 1; ; number++ {
		d := document{file: file, number: number}
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.wrong(d.place(), "", "is not YAML: "+fault.YAMLMessage(err), "correct the line; values with ': ' or '#' need quotes")
			return // the start of the next document is unknown
		}
		t := tree{left: maxConfigNodes}
		value := t.of("", &node)
		if t.message != "" {
			r.wrong(d.place(), t.path, t.message, t.remedy)
			continue
		}
		if value == nil {
			continue // nothing between two ---, or only a comment
		}
		for _, one := range answeredList(value) {
			before := len(r.found)
			r.document(&d, one)
			if len(r.found) == before {
				r.documents = append(r.documents, d)
			}
		}
		if len(r.found) >= maxMistakes || len(r.documents) > maxConfigs {
			return
		}
	}
}

// document converts a document to a message: its name, and the rest as its spec.
func (r *configReader) document(d *document, value any) {
	fields, ok := value.(map[string]any)
	if !ok {
		r.wrong(d.place(), "", "must be a config, is "+valueKind(value), "write name: …, pipeline: …, trigger: …")
		return
	}
	if _, ok := fields["assets"]; ok {
		r.wrong(d.place(), "", "is a manifest, not a config", "deploy it: servo deploy -f "+clean(d.file))
		return
	}
	d.workspace, d.input = r.workspace, &servov1.ConfigInput{}
	check := specCheck{wrong: func(field, message, remedy string) { r.wrong(d.place(), field, message, remedy) }}
	for name, take := range map[string]func(value any) bool{
		"name":      func(v any) (ok bool) { d.input.Name, ok = v.(string); return ok },
		"workspace": func(v any) (ok bool) { d.workspace, ok = v.(string); return ok },
		"enabled":   func(v any) bool { on, ok := v.(bool); d.input.Enabled = &on; return ok },
	} {
		if given, ok := fields[name]; ok && !take(given) {
			what := map[string]string{"enabled": "true or false"}[name]
			check.is(false, name, cmp.Or(what, "text"), given)
		}
		delete(fields, name)
	}
	if d.input.GetName() == "" {
		check.wrong("name", "is missing", "give it a name such as acme-aws-cost")
	}
	d.input.Spec = &servov1.ConfigSpec{}
	if spec, ok := fields["spec"].(map[string]any); ok {
		fields = answered(d, fields, spec)
	}
	if !check.message("", d.input.GetSpec().ProtoReflect().Descriptor(), fields, "name", "workspace", "enabled") {
		return
	}
	text, err := json.Marshal(fields)
	if err == nil {
		err = protojson.Unmarshal(text, d.input.GetSpec())
	}
	if err != nil {
		check.wrong("", "has values that do not fit their fields", "compare it with servo configs get -o yaml")
		return
	}
	key := d.workspace + "/" + d.input.GetName()
	if other, twice := r.seen[key]; twice {
		check.wrong("name", clean(d.input.GetName())+": duplicate name, see "+other, "remove one of them")
	}
	r.seen[key] = d.place()
}

// answeredList are the configs of a list that servo configs list prints; anything else is one
// document.
func answeredList(value any) []any {
	list, ok := value.([]any)
	isConfig := func(one any) bool { fields, ok := one.(map[string]any); return ok && fields["spec"] != nil }
	if !ok || len(list) == 0 || slices.ContainsFunc(list, func(one any) bool { return !isConfig(one) }) {
		return []any{value}
	}
	return list
}

// answered returns the spec of a config as servo configs get prints it.
func answered(d *document, fields, spec map[string]any) map[string]any {
	disabled := servov1.Config_DISABLED.String()
	if state, ok := fields["state"].(string); ok && d.input.Enabled == nil {
		on := state != disabled
		d.input.Enabled = &on
	}
	trigger, ok := spec["trigger"].(map[string]any)
	if ok {
		delete(trigger, "expression") // follows from the template
	}
	return withoutDefaults(spec)
}

// withoutDefaults removes unset fields, which a list of all fields includes.
func withoutDefaults(object map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range object {
		inner, isObject := value.(map[string]any)
		if isObject && name != "parameters" { // its values are the tenant's own
			inner = withoutDefaults(inner)
			value = inner
		}
		list, isList := value.([]any)
		if value == nil || value == "" || value == false || value == 0.0 || isObject && len(inner) == 0 || isList && len(list) == 0 {
			continue
		}
		out[name] = value
	}
	return out
}

// tree reads YAML into the values of JSON, with texts as they are written: a day is no instant.
type tree struct {
	left                  int
	path, message, remedy string // of the first value that is not JSON
}

func (t *tree) refuse(path, message, remedy string) any {
	if t.message == "" {
		t.path, t.message, t.remedy = path, message, remedy
	}
	return nil
}

func (t *tree) of(path string, node *yaml.Node) any {
	if t.left--; t.left < 0 {
		return t.refuse("", "is too large", "split it")
	}
	switch node.Kind {
	case yaml.DocumentNode:
		return t.of(path, node.Content[0])
	case yaml.AliasNode:
		return t.of(path, node.Alias)
	case yaml.SequenceNode:
		list := make([]any, len(node.Content))
		for i, entry := range node.Content {
			list[i] = t.of(fmt.Sprintf("%s[%d]", path, i), entry)
		}
		return list
	case yaml.MappingNode:
		object := make(map[string]any, len(node.Content)/2)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			_, twice := object[key.Value]
			if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" || twice {
				return t.refuse(below(path, key.Value), fmt.Sprintf("line %d: the key is set more than once, or is not plain text", key.Line), "write key: value")
			}
			object[key.Value] = t.of(below(path, key.Value), value)
		}
		return object
	case yaml.ScalarNode:
		return t.scalar(path, node)
	}
	return nil
}

func (t *tree) scalar(path string, node *yaml.Node) any {
	var err error
	switch node.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if err = node.Decode(&b); err == nil {
			return b
		}
	case "!!int", "!!float":
		var f float64
		if err = node.Decode(&f); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) && canon.ExactNumber(node.Value) {
			return f
		}
		message, _ := canon.InexactNumber(node.Value)
		return t.refuse(path, message, "put it in quotes")
	case "!!str", "!!timestamp":
		return node.Value
	}
	return t.refuse(path, "is neither text nor a number nor true or false", "write plain values")
}

func below(path, field string) string {
	if path == "" {
		return clean(field)
	}
	return path + "." + clean(field)
}

// specCheck compares a document with a message of the contract, to report mistakes in the
// terms of the file.
type specCheck struct {
	wrong func(field, message, remedy string)
}

// message checks the fields of a message; known are further names, for suggestions.
func (c specCheck) message(path string, of protoreflect.MessageDescriptor, value any, known ...string) bool {
	switch of.FullName() {
	case "google.protobuf.Timestamp":
		text, ok := value.(string)
		if _, err := time.Parse(time.RFC3339, text); !ok || err != nil {
			c.wrong(path, "is not a time", "write 2026-01-31T06:00:00Z")
			return false
		}
		return true
	case "google.protobuf.Struct":
		_, ok := value.(map[string]any)
		return c.is(ok, path, "an object", value)
	}
	for i := range of.Fields().Len() {
		known = append(known, of.Fields().Get(i).TextName())
	}
	fields, ok := value.(map[string]any)
	if !ok {
		slices.Sort(known)
		c.wrong(path, "must be an object, is "+valueKind(value), "write an object with fields of this list: "+strings.Join(known, ", "))
		return false
	}
	good := true
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field := of.Fields().ByTextName(name)
		if field == nil {
			slices.Sort(known)
			c.wrong(below(path, name), "unknown field"+suggest.DidYouMean(name, known), "known fields: "+strings.Join(known, ", "))
			good = false
			continue
		}
		good = c.field(below(path, name), field, fields[name]) && good
	}
	return good
}

func (c specCheck) field(path string, of protoreflect.FieldDescriptor, value any) bool {
	good := true
	switch {
	case of.IsMap():
		entries, ok := value.(map[string]any)
		if !c.is(ok, path, "an object", value) {
			return false
		}
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			good = c.scalar(below(path, name), of.MapValue(), entries[name]) && good
		}
		return good
	case of.IsList():
		entries, ok := value.([]any)
		if !c.is(ok, path, "a list", value) {
			return false
		}
		for i, entry := range entries {
			good = c.scalar(fmt.Sprintf("%s[%d]", path, i), of, entry) && good
		}
		return good
	case of.Message() != nil:
		return c.message(path, of.Message(), value)
	}
	return c.scalar(path, of, value)
}

func (c specCheck) scalar(path string, of protoreflect.FieldDescriptor, value any) bool {
	f, isNumber := value.(float64)
	switch of.Kind() {
	case protoreflect.BoolKind:
		_, ok := value.(bool)
		return c.is(ok, path, "true or false", value)
	case protoreflect.Int32Kind:
		return c.is(isNumber && f == math.Trunc(f) && math.Abs(f) <= math.MaxInt32, path, "a whole number", value)
	case protoreflect.DoubleKind:
		return c.is(isNumber, path, "a number", value)
	default:
		_, ok := value.(string)
		return c.is(ok, path, "text", value)
	}
}

// is reports a value of the wrong type.
func (c specCheck) is(ok bool, path, what string, value any) bool {
	if !ok {
		c.wrong(path, "must be "+what+", is "+valueKind(value), remedyFor(what, value))
	}
	return ok
}

func valueKind(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case bool:
		return "true or false"
	case float64:
		return "a number"
	case string:
		return "text"
	case []any:
		return "a list"
	default:
		return "an object"
	}
}

func remedyFor(what string, value any) string {
	if value == nil {
		return "remove it, or set a value"
	}
	switch value.(type) {
	case bool, float64:
		if what == "text" {
			return fmt.Sprintf("put it in quotes: %q", fmt.Sprint(value))
		}
	}
	return "write " + what
}
