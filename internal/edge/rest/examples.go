package rest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// bodyExamples are examples of request bodies by the name of their message.
func bodyExamples() (map[string]object, error) {
	text, err := docsFiles.ReadFile("docs/examples.json")
	if err != nil {
		return nil, err
	}
	var examples map[string]object
	if err := json.Unmarshal(text, &examples); err != nil {
		return nil, fmt.Errorf("read the examples of request bodies: %w", err)
	}
	return examples, nil
}

// numbered is the id that the generator gives to a further path of a call.
var numbered = regexp.MustCompile(`^([A-Z][a-z]+)([A-Za-z]*)[0-9]+$`)

// operationID returns the id of an operation. Additional paths of a call are named after their scope:
// one tenant, or the platform.
func operationID(generated, template string) string {
	name := generated[strings.LastIndexByte(generated, '.')+1:]
	parts := numbered.FindStringSubmatch(name)
	if parts == nil {
		return name
	}
	return parts[1] + scopeOf(template) + parts[2]
}

func scopeOf(template string) string {
	if strings.Contains(template, "{tenant}") {
		return "Tenant"
	}
	return "Platform"
}

// summary is the first sentence of a call's description without the call's name.
func summary(call, id, description, template string) string {
	first, _, _ := strings.Cut(description, ". ")
	first, _, _ = strings.Cut(first, ": ")
	first = strings.TrimSuffix(strings.TrimPrefix(first, call+" "), ".")
	if first == "" {
		return first
	}
	if id != call {
		first += map[string]string{"Tenant": " (one tenant)", "Platform": " (platform)"}[scopeOf(template)]
	}
	return strings.ToUpper(first[:1]) + first[1:]
}
