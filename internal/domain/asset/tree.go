package asset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
)

// A document in any format is decoded into the values that encoding/json uses: map[string]any,
// []any, string, float64, bool, nil.

// readTree decodes a document by the extension of its name, or by its first character if the name
// has none.
func readTree(data []byte, filename string) (any, error) {
	if len(data) > MaxBytes {
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("has %d bytes, the limit is %d", len(data), MaxBytes),
			fault.Field(filename), fault.Remedy("split the manifest into several deployments"),
			fault.Value("limit", MaxBytes), fault.Value("current", len(data)))
	}
	switch strings.ToLower(filepath.Ext(filename)) {
	case ".json":
		return readJSON(data)
	case ".yaml", ".yml":
		return readYAML(data, filename)
	}
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return readJSON(data)
	}
	return readYAML(data, filename)
}

func readJSON(data []byte) (any, error) {
	canonical, err := canon.Exact(data)
	if err != nil {
		return nil, asManifestFault(err)
	}
	var tree any
	if err := json.Unmarshal(canonical, &tree); err != nil {
		return nil, fmt.Errorf("read canonical JSON: %w", err)
	}
	if count := countNodes(tree); count > MaxNodes {
		return nil, tooManyNodes()
	}
	return tree, nil
}

// asManifestFault changes the code of a JSON fault to the code of an invalid manifest.
func asManifestFault(err error) error {
	if f, ok := fault.As(err); ok && f.Code == fault.InvalidArgument {
		f.Code = fault.InvalidManifest
	}
	return err
}

func countNodes(tree any) int {
	n := 1
	switch v := tree.(type) {
	case []any:
		for _, e := range v {
			n += countNodes(e)
		}
	case map[string]any:
		for _, e := range v {
			n += countNodes(e)
		}
	}
	return n
}

func tooManyNodes() error {
	return fault.New(fault.LimitExceeded, fmt.Sprintf("has more than %d values once its aliases are followed", MaxNodes),
		fault.Remedy("use fewer aliases or split the manifest"), fault.Value("limit", MaxNodes))
}

func readYAML(data []byte, filename string) (any, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, fault.New(fault.InvalidManifest, "the file is empty", fault.Field(filename),
			fault.Remedy("start with: version: 1"))
	case err != nil:
		return nil, fault.New(fault.InvalidManifest, "is not YAML: "+fault.YAMLMessage(err),
			fault.Field(filename), fault.Remedy("fix the line; values with ': ' or '#' need quotes"), fault.Cause(err))
	}
	var next yaml.Node
	if err := decoder.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.InvalidManifest, "contains more than one YAML document", fault.Field(filename),
			fault.Remedy("keep one manifest per file, without '---' between"))
	}
	r := yamlReader{following: map[*yaml.Node]bool{}}
	return r.value(&document, "", 0)
}

// yamlReader resolves aliases itself, with a budget: a few hundred bytes of YAML can name billions
// of values.
type yamlReader struct {
	nodes     int
	following map[*yaml.Node]bool
}

func (r *yamlReader) value(n *yaml.Node, path string, depth int) (any, error) {
	r.nodes++
	if r.nodes > MaxNodes {
		return nil, tooManyNodes()
	}
	if depth > canon.MaxDepth {
		return nil, yamlFault(n, path, fmt.Sprintf("is nested deeper than %d levels", canon.MaxDepth), "flatten it")
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return r.value(n.Content[0], path, depth)
	case yaml.AliasNode:
		if r.following[n.Alias] {
			return nil, yamlFault(n, path, "the alias *"+clip(n.Value)+" contains itself", "write the value out")
		}
		r.following[n.Alias] = true
		defer delete(r.following, n.Alias)
		return r.value(n.Alias, path, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, child := range n.Content {
			v, err := r.value(child, at(path, i), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, r.tagged(n, path, "!!seq")
	case yaml.MappingNode:
		return r.mapping(n, path, depth)
	case yaml.ScalarNode:
		return r.scalar(n, path)
	}
	return nil, yamlFault(n, path, "is not a YAML value", "write a mapping, a list or a scalar")
}

func (r *yamlReader) mapping(n *yaml.Node, path string, depth int) (any, error) {
	if err := r.tagged(n, path, "!!map"); err != nil {
		return nil, err
	}
	mapping := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
			return nil, yamlFault(key, path, "merge keys (<<) are not supported", "write the fields out, or use an alias for the whole value")
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			return nil, yamlFault(key, path, "a key must be a string", "put it in quotes")
		}
		if _, there := mapping[key.Value]; there {
			return nil, yamlFault(key, path, "duplicate key "+quoted(key.Value), "remove one of them")
		}
		v, err := r.value(n.Content[i+1], join(path, key.Value), depth+1)
		if err != nil {
			return nil, err
		}
		mapping[key.Value] = v
	}
	return mapping, nil
}

func (r *yamlReader) scalar(n *yaml.Node, path string) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!str", "!!timestamp": // a date is kept as text
		return n.Value, nil
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return nil, yamlFault(n, path, quoted(n.Value)+" is not true or false", "write true or false")
		}
		return b, nil
	case "!!int", "!!float":
		var f float64
		if err := n.Decode(&f); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, yamlFault(n, path, quoted(n.Value)+" is not a JSON number", "write a finite number, or put it in quotes")
		}
		if !canon.ExactNumber(n.Value) {
			message, _ := canon.InexactNumber(n.Value)
			return nil, yamlFault(n, path, message, "put it in quotes")
		}
		return f, nil
	}
	return nil, yamlFault(n, path, "unsupported tag "+clip(n.Tag), "remove it")
}

// tagged refuses collections with explicit tags, such as !!set or !custom.
func (r *yamlReader) tagged(n *yaml.Node, path, want string) error {
	if n.ShortTag() != want {
		return yamlFault(n, path, "unsupported tag "+clip(n.Tag), "remove it")
	}
	return nil
}

func yamlFault(n *yaml.Node, path, message, remedy string) error {
	return fault.New(fault.InvalidManifest, fmt.Sprintf("%s (line %d)", message, n.Line),
		fault.Field(path), fault.Remedy(remedy), fault.Value("line", n.Line))
}

// join appends a field to a path.
func join(path, field string) string {
	if !plainField(field) {
		return path + "[" + quoted(field) + "]"
	}
	if path == "" {
		return field
	}
	return path + "." + field
}

// plainField reports whether a path can contain a field without quotes.
func plainField(field string) bool {
	for _, b := range []byte(field) {
		if b != '_' && b != '-' && (b < '0' || b > '9') && (b|0x20 < 'a' || b|0x20 > 'z') {
			return false
		}
	}
	return field != "" && len(field) <= 80
}
