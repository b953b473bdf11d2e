// Package oidc identifies people by tokens of OpenID Connect issuers: which issuers are trusted,
// whether a token is valid, and which roles its token claims grant. Settings and rules are pure; a
// Verifier fetches and caches the keys of the issuers. It sends requests to the issuers of the
// settings only, and does not decide what a role may do.
package oidc

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/domain/tenant"
)

// Limits of the settings.
const (
	maxFile    = 1 << 20
	maxIssuers = 20
	maxRules   = 1000
	maxText    = 500
)

// Settings are the trusted issuers.
type Settings struct {
	Issuers []Issuer
}

// Issuer is a trusted issuer of tokens.
type Issuer struct {
	URL        string   // exactly as in its tokens and its discovery document
	Name       string   // part of the actors' names; "" if there is only one issuer
	Audiences  []string // one of them must be in a token
	Algorithms []string // of signatures; asymmetric ones only
	Subject    string   // the token claim that names people
	CA         string   // PEM file of its certificate authorities; empty: those of this machine
	Rules      []Rule
	Login      *Login // for logins to the UI; nil without logins
}

// Rule grants a role to people whose token has a claim with a value, or with a list that contains it.
// Grants of several rules add up; their order does not matter.
type Rule struct {
	Claim string // a name, or the path of a nested claim: /realm_access/roles
	Value string
	Grant access.Grant
}

func algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"}
}

func defaultAlgorithms() []string { return []string{"RS256", "ES256"} }

const defaultSubject = "sub"

var issuerName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,49}$`)

// Read reads the settings from the file of a flag.
func Read(path, flag string) (Settings, error) {
	refuse := func(message string, cause error) (Settings, error) {
		return Settings{}, fault.New(fault.InvalidArgument, message, fault.Field(flag), fault.Remedy("use a readable YAML or JSON file with issuers"), fault.Cause(cause))
	}
	info, err := os.Stat(path)
	if err != nil {
		return refuse(err.Error(), err)
	}
	if info.Size() > maxFile {
		return refuse(path+" has more than 1 MiB", nil)
	}
	data, err := os.ReadFile(path) //nolint:gosec // the operator names it
	if err != nil {
		return refuse(err.Error(), err)
	}
	return Parse(data, path)
}

// Parse parses settings. It reports all errors at once, with file, line and field.
func Parse(data []byte, file string) (Settings, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return Settings{}, fault.New(fault.InvalidArgument, fmt.Sprintf("%s is not YAML: %s", file, fault.YAMLMessage(err)), fault.Field("issuers"), fault.Remedy("write it as YAML or JSON"), fault.Cause(err))
	}
	r := &reader{file: file}
	var s Settings
	if len(doc.Content) == 0 {
		r.bad(&doc, "issuers", "is missing", "name at least one issuer")
	} else {
		s = r.settings(doc.Content[0])
	}
	if len(r.violations) > 0 {
		return Settings{}, fault.FromViolations(r.violations)
	}
	return s, nil
}

// reader reads nodes and collects violations.
type reader struct {
	file       string
	violations []fault.Violation
}

func (r *reader) bad(at *yaml.Node, field, message, remedy string) {
	where := r.file
	if at != nil && at.Line > 0 {
		where = fmt.Sprintf("%s:%d", r.file, at.Line)
	}
	r.violations = append(r.violations, fault.Violation{Code: fault.InvalidArgument, Field: field, Message: where + ": " + message, Remedy: remedy})
}

// fields are the members of a mapping, which may have these.
func (r *reader) fields(at *yaml.Node, field string, known ...string) map[string]*yaml.Node {
	found := map[string]*yaml.Node{}
	if at.Kind != yaml.MappingNode {
		r.bad(at, field, "is no mapping", "write "+strings.Join(known, ", ")+" with their values")
		return found
	}
	for i := 0; i+1 < len(at.Content); i += 2 {
		name := at.Content[i].Value
		switch _, twice := found[name]; {
		case twice:
			r.bad(at.Content[i], join(field, name), "is set more than once", "remove one of them")
		case !slices.Contains(known, name):
			r.bad(at.Content[i], join(field, clipped(name)), "is not known"+suggest.DidYouMean(name, known), "use one of "+strings.Join(known, ", "))
		default:
			found[name] = at.Content[i+1]
		}
	}
	return found
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

func clipped(text string) string { return fmt.Sprintf("%.100s", text) }

// items returns the parts of a list, up to a maximum.
func (r *reader) items(at *yaml.Node, field string, most int) []*yaml.Node {
	switch {
	case at == nil:
		return nil
	case at.Kind != yaml.SequenceNode:
		r.bad(at, field, "is no list", "write it as a list")
		return nil
	case len(at.Content) > most:
		r.bad(at, field, fmt.Sprintf("has %d parts", len(at.Content)), fmt.Sprintf("use up to %d", most))
		return nil
	}
	return at.Content
}

// text is a text that may be left out.
func (r *reader) text(at *yaml.Node, field string) string {
	switch {
	case at == nil:
		return ""
	case at.Kind != yaml.ScalarNode || at.Tag == "!!null":
		r.bad(at, field, "is no text", "write it as one text")
	case at.Value == "" || len(at.Value) > maxText:
		r.bad(at, field, fmt.Sprintf("has %d bytes", len(at.Value)), fmt.Sprintf("use 1 to %d bytes, or leave it out", maxText))
	default:
		return at.Value
	}
	return ""
}

// needed is a text that must be there.
func (r *reader) needed(parent *yaml.Node, at *yaml.Node, field, remedy string) string {
	if at == nil {
		r.bad(parent, field, "is missing", remedy)
		return ""
	}
	return r.text(at, field)
}

func (r *reader) settings(at *yaml.Node) (s Settings) {
	list := r.items(r.fields(at, "", "issuers")["issuers"], "issuers", maxIssuers)
	if len(list) == 0 && len(r.violations) == 0 {
		r.bad(at, "issuers", "is empty", "name at least one issuer")
	}
	for i, node := range list {
		field := fmt.Sprintf("issuers[%d]", i)
		one := r.issuer(node, field)
		for _, other := range s.Issuers {
			if one.URL != "" && one.URL == other.URL {
				r.bad(node, field+".issuer", "duplicate issuer "+one.URL, "merge its audiences and grants")
			}
			if one.Name != "" && one.Name == other.Name {
				r.bad(node, field+".name", "duplicate name "+one.Name, "use another name: it distinguishes people of different issuers")
			}
		}
		if one.Name == "" && len(list) > 1 {
			r.bad(node, field+".name", "is missing", "give each of several issuers a name: it distinguishes their people in the audit")
		}
		s.Issuers = append(s.Issuers, one)
	}
	return s
}

func (r *reader) issuer(at *yaml.Node, field string) Issuer {
	m := r.fields(at, field, "issuer", "name", "audiences", "algorithms", "subject", "ca", "grants", "login")
	one := Issuer{
		URL:  r.needed(at, m["issuer"], field+".issuer", "give its URL as its tokens write it, such as https://login.example.com/realms/data"),
		Name: r.text(m["name"], field+".name"), Subject: r.text(m["subject"], field+".subject"), CA: r.text(m["ca"], field+".ca"),
	}
	if reason := refusedURL(one.URL); one.URL != "" && reason != "" {
		r.bad(m["issuer"], field+".issuer", reason, "give https://HOST/PATH as its tokens write it; http:// is for issuers on this machine")
	}
	if one.Name != "" && !issuerName.MatchString(one.Name) {
		r.bad(m["name"], field+".name", fmt.Sprintf("%.60q is not a name", one.Name), "use up to 50 lower-case letters, digits, - _ and .")
	}
	if one.Subject == "" {
		one.Subject = defaultSubject
	}
	if one.CA != "" && !filepath.IsAbs(one.CA) {
		one.CA = filepath.Join(filepath.Dir(r.file), one.CA)
	}
	for i, node := range r.items(m["audiences"], field+".audiences", maxIssuers) {
		one.Audiences = append(one.Audiences, r.text(node, fmt.Sprintf("%s.audiences[%d]", field, i)))
	}
	if len(one.Audiences) == 0 {
		r.bad(at, field+".audiences", "is missing", "name what tokens for this server have as aud: tokens for others must be refused")
	}
	for i, node := range r.items(m["algorithms"], field+".algorithms", len(algorithms())) {
		named := r.text(node, fmt.Sprintf("%s.algorithms[%d]", field, i))
		if named != "" && !slices.Contains(algorithms(), named) {
			r.bad(node, fmt.Sprintf("%s.algorithms[%d]", field, i), fmt.Sprintf("%.50q cannot be used%s", named, suggest.DidYouMean(named, algorithms())),
				"use signatures with a public key: "+strings.Join(algorithms(), ", "))
		}
		one.Algorithms = append(one.Algorithms, named)
	}
	if len(one.Algorithms) == 0 {
		one.Algorithms = defaultAlgorithms()
	}
	if m["login"] != nil {
		one.Login = r.login(m["login"], field+".login", one)
	}
	rules := r.items(m["grants"], field+".grants", maxRules)
	if len(rules) == 0 {
		r.bad(at, field+".grants", "is missing", "add a grant, such as {claim: groups, value: data-team, role: operator, tenant: acme}")
	}
	for i, node := range rules {
		one.Rules = append(one.Rules, r.rule(node, fmt.Sprintf("%s.grants[%d]", field, i)))
	}
	return one
}

func (r *reader) rule(at *yaml.Node, field string) Rule {
	m := r.fields(at, field, "claim", "value", "role", "tenant", "workspace")
	rule := Rule{
		Claim: r.needed(at, m["claim"], field+".claim", "name the claim, such as groups"),
		Value: r.needed(at, m["value"], field+".value", "set the value that the token claim must have or contain"),
	}
	rule.Grant = access.Grant{
		Role:   access.Role(r.needed(at, m["role"], field+".role", "use one of "+strings.Join(roles(), ", "))),
		Tenant: r.text(m["tenant"], field+".tenant"), Workspace: r.text(m["workspace"], field+".workspace"),
	}
	g := rule.Grant
	switch {
	case g.Role == "":
	case g.Role == access.Worker:
		r.bad(m["role"], field+".role", "worker is not a role of people", "give workers keys: servo keys create --role worker")
	case g.Role == access.Tick:
		r.bad(m["role"], field+".role", "tick is not a role of people", "give the outside clock a key: servo keys create --platform --role tick")
	case !g.Role.Known():
		r.bad(m["role"], field+".role", fmt.Sprintf("%.50q is not a role%s", string(g.Role), suggest.DidYouMean(string(g.Role), roles())), "use one of "+strings.Join(roles(), ", "))
	case g.Role == access.Platform && g.Tenant != "":
		r.bad(m["tenant"], field+".tenant", "platform is not a role of a tenant", "leave the tenant out, or use the role admin")
	case g.Role == access.Platform && g.Workspace != "":
		r.bad(m["workspace"], field+".workspace", "is for the roles of a tenant", "leave it out")
	case g.Role != access.Platform && m["tenant"] == nil:
		r.bad(at, field+".tenant", "is missing", fmt.Sprintf("name the tenant in which %s is granted; only platform has none", g.Role))
	}
	for _, n := range []struct{ name, value string }{{"tenant", g.Tenant}, {"workspace", g.Workspace}} {
		if n.value != "" && tenant.ValidateName(n.name, n.value) != nil {
			r.bad(m[n.name], field+"."+n.name, fmt.Sprintf("%.100q is not the name of a %s", n.value, n.name), "use its name as servo shows it")
		}
	}
	return rule
}

func roles() (names []string) {
	for _, role := range access.Roles() {
		if role != access.Worker && role != access.Tick {
			names = append(names, string(role))
		}
	}
	return names
}

// refusedURL returns why a URL cannot be used for an issuer or its keys; empty if it can.
func refusedURL(text string) string {
	parsed, err := url.Parse(text)
	switch {
	case err != nil || parsed.Host == "" || parsed.Opaque != "":
		return fmt.Sprintf("%.200q is not a URL", text)
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" || strings.ContainsAny(text, "?#"):
		return fmt.Sprintf("%.200q has a user, a query or a fragment", text)
	case parsed.Scheme == "http" && !loopback(parsed.Hostname()):
		return fmt.Sprintf("%.200q is not encrypted", text)
	case parsed.Scheme != "https" && parsed.Scheme != "http":
		return fmt.Sprintf("%.200q is not https://", text)
	}
	return ""
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
