package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// ConfigChange is an entry of the audit of a config, with the changed fields.
type ConfigChange struct {
	Entry  *servov1.ConfigAudit
	Fields []FieldChange
}

// FieldChange is a changed field.
type FieldChange struct{ Field, Before, After string }

// ChangeOf compares the config before and after an entry. Of a new config it lists all fields.
func ChangeOf(e *servov1.ConfigAudit) ConfigChange {
	return ConfigChange{Entry: e, Fields: changed(flat(e.GetBefore()), flat(e.GetAfter()))}
}

func changed(before, after map[string]string) (out []FieldChange) {
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before[name] != after[name] {
			out = append(out, FieldChange{Field: name, Before: before[name], After: after[name]})
		}
	}
	return out
}

// flat is an object as fields with paths, such as trigger.cron.
func flat(s *structpb.Struct) map[string]string {
	out := map[string]string{}
	flatten(out, "", s.AsMap())
	return out
}

func flatten(out map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			under := name
			if path != "" {
				under = path + "." + name
			}
			flatten(out, under, inner)
		}
	case string:
		out[path] = v
	case nil:
		out[path] = ""
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			raw = []byte(fmt.Sprint(v))
		}
		out[path] = string(raw)
	}
}

// pairLines are the pairs of a map, each joined, in the order of their names.
func pairLines(pairs map[string]string, join string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		out = append(out, name+join+pairs[name])
	}
	return out
}

// shownFields is the number of changed fields of an entry that are shown with their values.
const shownFields = 12

// moreFields are the names of the other changed fields.
func moreFields(all []FieldChange) string {
	var names []string
	for _, f := range all[min(len(all), shownFields):] {
		names = append(names, f.Field)
	}
	return strings.Join(names, ", ")
}
