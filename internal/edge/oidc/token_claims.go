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

// Claims are what a token says.
type Claims map[string]any

const (
	emailClaim    = "email"
	verifiedClaim = "email_verified"
)

// at is a claim by its name, or by the way to it if that begins with a slash; nil if there is
// none. An address that the issuer has not seen to belong to its owner is no claim: whoever may
// write what he likes into his profile would be somebody else by it.
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

// verified says that the issuer does not deny it: many tokens lack the claim. A text is not true.
func (c Claims) verified() bool {
	said, present := c[verifiedClaim]
	return !present || said == true
}

// claimTypes are the types of the registered claims that decisions are made by. Libraries read
// them leniently, each in its own way, so that two readers of a token may see different things.
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

// checkTypes refuses claims of a wrong type, null included, and names that differ in case only:
// some readers take one for the other.
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

// has reports whether a claim is a value, or a list with the value in it.
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

// scalar is a claim that is one value, as text.
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

// Person is whom the claims of a token speak of. It is none if nobody is named.
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

// actor names a subject for events and the audit. Subjects that cannot stand there as they are
// get a digest, so that no two of them are the same actor, and none is another's.
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
