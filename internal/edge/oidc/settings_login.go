package oidc

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"go.arco.dev/servo/internal/base/fault"
)

// Login is how people log in to the pages with an issuer: as what this installation is known
// there. The secret itself is never part of the settings, which are logged and shown.
type Login struct {
	ClientID   string   // one of the audiences: ID tokens are for it
	SecretFile string   // file with the client secret; "" is none
	SecretEnv  string   // environment variable with it; "" is none. Neither is a public client
	Scopes     []string // what is asked for
	Label      string   // whom the button names
}

// Limits of logins.
const (
	maxScopes = 20
	maxLabel  = 60
	maxSecret = 4 << 10
)

const scopeOpenID = "openid"

func defaultScopes() []string { return []string{scopeOpenID, "profile", "email"} }

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	scopeName    = regexp.MustCompile(`^[!#-\[\]-~]+$`) // RFC 6749, section 3.3
)

// login reads how people log in with an issuer, of which the rest is read already.
func (r *reader) login(at *yaml.Node, field string, of Issuer) *Login {
	m := r.fields(at, field, "client_id", "client_secret_file", "client_secret_env", "scopes", "label")
	l := &Login{
		ClientID:   r.needed(at, m["client_id"], field+".client_id", "give the id that the issuer has given to this installation"),
		SecretFile: r.text(m["client_secret_file"], field+".client_secret_file"),
		SecretEnv:  r.text(m["client_secret_env"], field+".client_secret_env"),
		Label:      r.text(m["label"], field+".label"),
	}
	if l.ClientID != "" && !slices.Contains(of.Audiences, l.ClientID) {
		r.bad(m["client_id"], field+".client_id", fmt.Sprintf("%.100q is none of the audiences", l.ClientID),
			"add it to audiences: the ID token of a login is for the client, and would be refused")
	}
	if l.SecretFile != "" && l.SecretEnv != "" {
		r.bad(m["client_secret_env"], field+".client_secret_env", "is set beside client_secret_file", "remove one of the two")
	}
	if l.SecretEnv != "" && !variableName.MatchString(l.SecretEnv) {
		r.bad(m["client_secret_env"], field+".client_secret_env", "is not the name of a variable", "name the environment variable that has the secret, and not the secret itself")
	}
	if l.SecretFile != "" && !filepath.IsAbs(l.SecretFile) {
		l.SecretFile = filepath.Join(filepath.Dir(r.file), l.SecretFile)
	}
	if len(l.Label) > maxLabel || strings.ContainsFunc(l.Label, func(c rune) bool { return !unicode.IsPrint(c) }) {
		r.bad(m["label"], field+".label", fmt.Sprintf("has more than %d bytes, or characters that cannot be printed", maxLabel), "name whom people log in with, such as ACME")
	}
	if parsed, err := url.Parse(of.URL); l.Label == "" && err == nil {
		l.Label = parsed.Host
	}
	l.Scopes = r.scopes(m["scopes"], field+".scopes")
	return l
}

// scopes reads what a login asks for.
func (r *reader) scopes(at *yaml.Node, field string) (scopes []string) {
	for i, node := range r.items(at, field, maxScopes) {
		scope := r.text(node, fmt.Sprintf("%s[%d]", field, i))
		switch {
		case scope == "offline_access":
			r.bad(node, fmt.Sprintf("%s[%d]", field, i), "offline_access asks for a token that nothing here keeps", "leave it out: a session ends with its token")
		case scope != "" && !scopeName.MatchString(scope):
			r.bad(node, fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("%.100q is not a scope", scope), "write one scope in each part of the list, without blanks")
		}
		scopes = append(scopes, scope)
	}
	switch {
	case len(scopes) == 0:
		return defaultScopes()
	case !slices.Contains(scopes, scopeOpenID):
		r.bad(at, field, "has no "+scopeOpenID, "add it: without it the issuer gives no ID token")
	}
	return scopes
}

// secret reads the client secret, which is "" for a public client.
func (l *Login) secret() (string, error) {
	field, where := "login.client_secret_file", l.SecretFile
	var text string
	switch {
	case l.SecretFile != "":
		info, err := os.Stat(l.SecretFile)
		if err == nil && info.Size() > maxSecret {
			err = errors.New(l.SecretFile + " has more than 4 KiB")
		}
		var raw []byte
		if err == nil {
			raw, err = os.ReadFile(l.SecretFile)
		}
		if err != nil {
			return "", fault.New(fault.InvalidArgument, err.Error(), fault.Field(field), fault.Remedy("name a file with the client secret that the server may read"), fault.Cause(err))
		}
		text = strings.TrimRight(string(raw), "\r\n")
	case l.SecretEnv != "":
		field, where = "login.client_secret_env", l.SecretEnv
		text = os.Getenv(l.SecretEnv)
	default:
		return "", nil
	}
	if text == "" {
		return "", fault.New(fault.InvalidArgument, where+" has no client secret", fault.Field(field),
			fault.Remedy("put the secret there that the issuer has given to this installation, or leave "+field+" out if it is a public client"))
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", fault.New(fault.InvalidArgument, where+" has characters that no client secret has", fault.Field(field), fault.Remedy("put the secret there in one line, and nothing else"))
	}
	return text, nil
}
