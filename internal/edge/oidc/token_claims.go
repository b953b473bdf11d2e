package oidc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"

	"go.arco.dev/servo/internal/domain/access"
)

// Claims are the claims of a token.
type Claims map[string]any

const (
	emailClaim    = "email"
	verifiedClaim = "email_verified"
)

// at returns a token claim by its name, or by its path if that begins with a slash; nil if it is not
// set. An unverified email address counts as not set: people could write another person's address
// into their profile.
func (c Claims) at(name string) any {
	way, nested := strings.CutPrefix(name, "/")
	if !nested || !strings.Contains(way, "/") {
		name = way
		if name == emailClaim && !c.verified() {
			return nil
		}
		return c[name]
	}
	var here any = map[string]any(c)
	for part := range strings.SplitSeq(way, "/") {
		members, ok := here.(map[string]any)
		if !ok {
			return nil
		}
		here = members[part]
	}
	return here
}

// verified reports whether the email address is verified. Many tokens lack this claim, so that only an
// explicit value other than true counts as unverified.
func (c Claims) verified() bool {
	verified, present := c[verifiedClaim]
	return !present || verified == true
}

// claimTypes are the types of the registered token claims that decisions depend on. Libraries parse
// them leniently and differently, so that two of them may read the same token differently.
var claimTypes = map[string]func(any) bool{ //nolint:gochecknoglobals // a table
	"iss": isText, "sub": isText, "azp": isText, emailClaim: isText, "aud": isTextOrTexts,
	"exp": isNumber, "nbf": isNumber, "iat": isNumber, "auth_time": isNumber, verifiedClaim: isBool,
}

func isText(v any) bool   { _, ok := v.(string); return ok }
func isNumber(v any) bool { _, ok := v.(json.Number); return ok }
func isBool(v any) bool   { _, ok := v.(bool); return ok }

func isTextOrTexts(v any) bool {
	list, ok := v.([]any)
	return isText(v) || ok && !slices.ContainsFunc(list, func(e any) bool { return !isText(e) })
}

// checkTypes refuses claims of a wrong type, including null, and names that differ in case only:
// some libraries confuse them.
func (c Claims) checkTypes() error {
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		folded := strings.ToLower(name)
		if other, twice := seen[folded]; twice {
			return refuse("the claims %.100q and %.100q differ in case only", other, name)
		}
		seen[folded] = name
		if right, known := claimTypes[name]; known && !right(c[name]) {
			return refuse("the claim %s has a wrong type", name)
		}
		if _, known := claimTypes[folded]; known && folded != name {
			return refuse("the claim %.100q is spelt in capitals", name)
		}
	}
	return nil
}

// has reports whether a claim is a value, or a list that contains it.
func (c Claims) has(name, value string) bool {
	is := func(claim any) bool {
		text, ok := scalar(claim)
		return ok && text == value
	}
	switch claim := c.at(name).(type) {
	case []any:
		return slices.ContainsFunc(claim, is)
	default:
		return is(claim)
	}
}

// scalar returns a claim with a single value as text.
func scalar(claim any) (string, bool) {
	switch v := claim.(type) {
	case string:
		return v, true
	case bool:
		if v {
			return "true", true
		}
		return "false", true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

// Person returns the subject of a token with its grants; false if the token names no subject.
func (i Issuer) Person(claims Claims) (access.Person, bool) {
	subject, ok := claims.at(i.Subject).(string)
	if !ok || subject == "" {
		return access.Person{}, false
	}
	p := access.Person{Actor: i.actor(subject)}
	for _, rule := range i.Rules {
		if claims.has(rule.Claim, rule.Value) && !slices.Contains(p.Grants, rule.Grant) {
			p.Grants = append(p.Grants, rule.Grant)
		}
	}
	return p, true
}

// maxActor bounds the name of an actor, in bytes.
const maxActor = 200

// actor returns the name of a subject for events and the audit. Subjects with unprintable characters
// and long ones get a digest, so that different subjects are different actors.
func (i Issuer) actor(subject string) string {
	prefix := "oidc/"
	if i.Name != "" {
		prefix += i.Name + "/"
	}
	const digest = 1 + 16 // # and hex digits
	plain := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || r == '#' || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, subject)
	if plain == subject && len(prefix)+len(subject) <= maxActor {
		return prefix + subject
	}
	plain = strings.ToValidUTF8(plain[:min(len(plain), maxActor-len(prefix)-digest)], "")
	sum := sha256.Sum256([]byte(subject))
	return prefix + plain + "#" + hex.EncodeToString(sum[:])[:digest-1]
}
