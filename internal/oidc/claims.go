package oidc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"go.arco.dev/servo/internal/access"
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

// verified says that the issuer does not deny it: many never speak of it.
func (c Claims) verified() bool {
	said, spoken := c[verifiedClaim]
	return !spoken || said == true || said == "true"
}

// has says whether a claim is a value, or a list with the value in it.
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
