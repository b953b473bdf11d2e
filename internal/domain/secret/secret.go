package secret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

// Ref names a secret. The value is known to the provider only.
type Ref struct {
	Provider string
	Path     string
	Version  string // "" is the latest
}

// The providers.
const (
	Env   = "env"   // a variable of the worker's environment
	File  = "file"  // a file below the worker's directory of secrets
	Vault = "vault" // mount/path#field of a key-value engine, version 2
)

// Providers are all providers.
var Providers = []string{Env, File, Vault}

const maxRef = 500

var (
	refPattern = regexp.MustCompile(`^([a-z]+):([A-Za-z0-9_][A-Za-z0-9_./#-]*)(?:@([A-Za-z0-9]+))?$`)
	inText     = regexp.MustCompile(`\$\{secret:([^}]*)\}?`)
)

// String returns the reference as people write it: provider:path, and @version if it has one.
func (r Ref) String() string {
	text := r.Provider + ":" + r.Path
	if r.Version != "" {
		text += "@" + r.Version
	}
	return text
}

// Parse reads a reference, as provider:path[@version] or ${secret:provider:path[@version]}.
func Parse(text string) (Ref, error) {
	if inner, wrapped := strings.CutPrefix(text, "${secret:"); wrapped {
		var closed bool
		if text, closed = strings.CutSuffix(inner, "}"); !closed {
			return Ref{}, refuse(text, "has no closing brace")
		}
	}
	match := refPattern.FindStringSubmatch(text)
	switch {
	case len(text) > maxRef:
		return Ref{}, refuse(text[:40]+"…", fmt.Sprintf("has %d bytes, the limit is %d", len(text), maxRef))
	case match == nil, strings.Contains(text, ".."):
		return Ref{}, refuse(text, "is not a reference")
	case !slices.Contains(Providers, match[1]):
		return Ref{}, refuse(text, fmt.Sprintf("has the unknown provider %q", match[1]))
	}
	return Ref{Provider: match[1], Path: match[2], Version: match[3]}, nil
}

func refuse(text, message string) error {
	return fault.New(fault.InvalidArgument, fmt.Sprintf("secret %.100q %s", text, message), fault.Field("secret"),
		fault.Remedy("write ${secret:PROVIDER:PATH} with a provider of "+strings.Join(Providers, ", ")))
}

// Refs returns the references in a text, and an error for the first one that is malformed.
func Refs(text string) ([]Ref, error) {
	var refs []Ref
	for _, match := range inText.FindAllString(text, -1) {
		r, err := Parse(match)
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}

// Expand replaces the references in a text by their values.
func Expand(text string, resolve func(Ref) (string, error)) (string, error) {
	if _, err := Refs(text); err != nil {
		return "", err
	}
	var failed error
	expanded := inText.ReplaceAllStringFunc(text, func(match string) string {
		r, err := Parse(match)
		if err == nil {
			var value string
			if value, err = resolve(r); err == nil {
				return value
			}
		}
		if failed == nil {
			failed = err
		}
		return ""
	})
	if failed != nil {
		return "", failed
	}
	return expanded, nil
}

// Rule permits secrets to tasks of tenants, on workers of pools.
type Rule struct {
	Tenants []string `yaml:"tenants"` // "*" is all
	Pools   []string `yaml:"pools"`   // empty is all
	Secrets []string `yaml:"secrets"` // references; a "*" at the end stands for any text
}

// Rules permit what any of them permits. Without rules nothing is permitted.
type Rules []Rule

// Allows reports whether a task of a tenant may read a secret on a worker. A worker does not know the
// pool of a task, so a rule with pools applies to workers that serve no other pools.
func (rules Rules) Allows(tenant string, pools []string, r Ref) bool {
	return slices.ContainsFunc(rules, func(rule Rule) bool {
		return (slices.Contains(rule.Tenants, "*") || slices.Contains(rule.Tenants, tenant)) &&
			(len(rule.Pools) == 0 || !slices.ContainsFunc(pools, func(pool string) bool { return !slices.Contains(rule.Pools, pool) })) &&
			slices.ContainsFunc(rule.Secrets, func(pattern string) bool { return matches(pattern, r) })
	})
}

// matches compares a reference with a pattern, with and without its version.
func matches(pattern string, r Ref) bool {
	bare := Ref{Provider: r.Provider, Path: r.Path}.String()
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(bare, prefix)
	}
	return pattern == bare || pattern == r.String()
}

// MinLength is the minimum length of a value in bytes. Shorter ones cannot be redacted: they occur in
// other texts.
const MinLength = 4

// minForm is the minimum length of a derived form.
const minForm = 6

// Forms returns the texts in which a value can leak: itself, its lines, escaped in JSON and in URLs, and
// in base64 at any position of a longer text. Longer forms come first.
func Forms(value string) []string {
	forms := []string{value, url.QueryEscape(value), url.PathEscape(value)}
	if quoted, err := json.Marshal(value); err == nil {
		forms = append(forms, string(quoted[1:len(quoted)-1]))
	}
	forms = append(forms, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(value))
	for line := range strings.Lines(value) {
		if line = strings.TrimRight(line, "\r\n"); len(line) >= minForm {
			forms = append(forms, line)
		}
	}
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for offset := range 3 {
			if form := aligned(encoding, value, offset); len(form) >= minForm {
				forms = append(forms, form)
			}
		}
	}
	slices.SortFunc(forms, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(forms)
}

// aligned returns the part of the base64 text that the value alone determines, if it begins at an
// offset within a group of three bytes.
func aligned(encoding *base64.Encoding, value string, offset int) string {
	text := encoding.EncodeToString([]byte(strings.Repeat("\x00", offset) + value))
	if (offset+len(value))%3 != 0 {
		text = text[:len(text)-1]
	}
	return text[min([]int{0, 2, 3}[offset], len(text)):]
}

// Redacted is what replaces a value. It is shorter than any value, so that texts do not grow beyond
// their limits.
const Redacted = "***"
