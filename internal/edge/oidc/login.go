package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/oauth2"

	"go.arco.dev/servo/internal/base/fault"
)

// Limits of logins under way.
const (
	maxTokens    = 128 << 10 // bytes of the answer to a code
	maxCode      = 4 << 10
	maxExchanges = 10 // at once with one issuer: whoever makes up codes must not use us against it
	exchangeWait = 5 * time.Second
)

// Choice is an issuer that people can log in with.
type Choice struct {
	Name  string // by which Begin knows it
	Label string // whom the button names
}

// onlyIssuer is what the one issuer that has no name is called in addresses.
const onlyIssuer = "issuer"

func (i Issuer) slug() string {
	if i.Name == "" {
		return onlyIssuer // several have names, all of them
	}
	return i.Name
}

// Choices are the issuers that people can log in with.
func (v *Verifier) Choices() (choices []Choice) {
	if v == nil {
		return nil
	}
	for _, t := range v.logins {
		choices = append(choices, Choice{Name: t.slug(), Label: t.Login.Label})
	}
	return choices
}

// loginClient is what this server is to an issuer that people log in with.
type loginClient struct {
	secret string
	http   *http.Client
	seats  chan struct{}
}

// newLoginClient asks as the client for keys does, but follows no redirect at all: what it sends
// is a secret.
func newLoginClient(l *Login, keys *http.Client) (*loginClient, error) {
	secret, err := l.secret()
	if err != nil {
		return nil, err
	}
	transport := keys.Transport
	if held, ok := transport.(limited); ok {
		transport = limited{held.RoundTripper, maxTokens}
	}
	return &loginClient{secret: secret, seats: make(chan struct{}, maxExchanges), http: &http.Client{
		Timeout: exchangeWait, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Attempt is a login that was begun. It is to be kept, until the browser comes back, where
// nobody but a server can read or change it.
type Attempt struct {
	Issuer   string `json:"i"`
	State    string `json:"s"` // shows that the answer is to this attempt
	Nonce    string `json:"n"` // shows that the token is for this attempt
	Verifier string `json:"v"` // shows that the code is asked for by who has begun
	Redirect string `json:"r"` // where the issuer sends the browser
}

// Begin is where to send a browser that logs in, and what to keep until it comes back.
func (v *Verifier) Begin(ctx context.Context, name, redirect string) (address string, a Attempt, err error) {
	t := v.loginOf(func(t *trusted) bool { return t.slug() == name })
	if t == nil {
		return "", Attempt{}, fault.New(fault.NotFound, "nobody logs in here with what is called "+printable(name), fault.Remedy("choose one of the ways to log in on the login page"))
	}
	config, _, err := t.oauth(ctx, redirect)
	if err != nil {
		v.log.WarnContext(ctx, "a login cannot begin", "issuer", t.URL, "error", err)
		return "", Attempt{}, err
	}
	a = Attempt{Issuer: t.URL, State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Redirect: redirect}
	return config.AuthCodeURL(a.State, oauth2.SetAuthURLParam("nonce", a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), a, nil
}

func (v *Verifier) loginOf(is func(t *trusted) bool) *trusted {
	if v == nil {
		return nil
	}
	if at := slices.IndexFunc(v.logins, is); at >= 0 {
		return v.logins[at]
	}
	return nil
}

// Finish takes what an issuer has sent a browser back with, and gives the ID token of whoever
// has logged in. Nothing of an answer is looked at, or shown, before it is known to be the
// answer to this attempt.
func (v *Verifier) Finish(ctx context.Context, a Attempt, answer url.Values) (token string, err error) {
	t := v.loginOf(func(t *trusted) bool { return t.URL == a.Issuer })
	if t == nil || a.State == "" || subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(a.State)) != 1 {
		return "", NotBegun()
	}
	config, found, err := t.oauth(ctx, a.Redirect)
	if err != nil {
		v.log.WarnContext(ctx, "a login cannot end", "issuer", t.URL, "error", err)
		return "", err
	}
	// RFC 9207: with several issuers, one of them must not pass on what another has said.
	if from := answer.Get("iss"); from != t.URL && (from != "" || found.NamesSelf) {
		v.log.WarnContext(ctx, "the answer to a login is not of the issuer that was asked", "issuer", t.URL, "said", printable(from))
		return "", NotBegun()
	}
	if code := answer.Get("error"); code != "" {
		v.log.InfoContext(ctx, "an issuer has refused a login", "issuer", t.URL, "error", printable(code), "description", printable(answer.Get("error_description")))
		return "", t.declined(code, answer.Get("error_description"))
	}
	if code := answer.Get("code"); code == "" || len(code) > maxCode {
		return "", NotBegun()
	}
	token, err = t.exchange(ctx, config, answer.Get("code"), a.Verifier)
	if err != nil {
		v.log.WarnContext(ctx, "a login could not be ended", "issuer", t.URL, "error", summary(err))
		return "", t.undone(err)
	}
	_, reason, err := v.Verify(ctx, token)
	if err != nil {
		return "", err
	}
	if reason == "" {
		reason = t.misfit(token, a.Nonce)
	}
	if reason != "" {
		v.log.WarnContext(ctx, "the token of a login is not believed", "issuer", t.URL, "reason", reason)
		return "", fault.New(fault.Forbidden, t.Login.Label+" has given a token that is not believed here", fault.Remedy("log in again; if that does not help, tell whoever runs this installation: the server's log says why"))
	}
	return token, nil
}

// NotBegun is the answer to whoever comes back from a login that nobody has begun, or that is
// over. Browsers can be sent here by anybody, with anything.
func NotBegun() error {
	return fault.New(fault.Forbidden, "this is not the end of a login that was begun in this browser within the last minutes", fault.Remedy("log in again"))
}

// oauth is how to speak with the issuer, which may have to be asked first.
func (t *trusted) oauth(ctx context.Context, redirect string) (*oauth2.Config, published, error) {
	held := t.keys.current()
	if held == nil {
		t.keys.demand(ctx)
		held = t.keys.current()
	}
	if held == nil {
		return nil, published{}, fault.New(fault.Unavailable, t.Login.Label+" cannot be reached", fault.RetryAfter(demandEach), fault.Remedy("try again in a moment, or log in with an API key"))
	}
	if err := held.canLogIn(t.URL); err != nil {
		return nil, published{}, fault.New(fault.Unavailable, t.Login.Label+" cannot be used to log in", fault.Remedy("log in with an API key, and tell whoever runs this installation: the server's log says why"), fault.Cause(err))
	}
	style := oauth2.AuthStyleInHeader // what every issuer has that does not say otherwise
	if t.login.secret == "" || len(held.Methods) > 0 && !slices.Contains(held.Methods, "client_secret_basic") && slices.Contains(held.Methods, "client_secret_post") {
		style = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: t.Login.ClientID, ClientSecret: t.login.secret, RedirectURL: redirect, Scopes: t.Login.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: held.Authorize, TokenURL: held.Token, AuthStyle: style},
	}, held.published, nil
}

// canLogIn says what is missing for logins in a discovery document.
func (p published) canLogIn(issuer string) error {
	for _, e := range []struct{ name, url string }{{"authorization_endpoint", p.Authorize}, {"token_endpoint", p.Token}} {
		if e.url == "" {
			return fmt.Errorf("discovery: %s is missing: people cannot log in", e.name)
		}
		if reason := refusedEndpoint(e.url, issuer); reason != "" {
			return fmt.Errorf("discovery: %s: %s", e.name, reason)
		}
	}
	return nil
}

var (
	errBusy    = errors.New("too many logins at once")
	errNoToken = errors.New("the answer has no ID token")
)

// exchange gives the ID token for a code.
func (t *trusted) exchange(ctx context.Context, config *oauth2.Config, code, verifier string) (string, error) {
	select {
	case t.login.seats <- struct{}{}:
		defer func() { <-t.login.seats }()
	default:
		return "", errBusy
	}
	got, err := config.Exchange(context.WithValue(ctx, oauth2.HTTPClient, t.login.http), code, oauth2.VerifierOption(verifier))
	if err != nil {
		return "", err
	}
	token, _ := got.Extra("id_token").(string)
	if token == "" {
		return "", errNoToken
	}
	return token, nil
}

// misfit says why a token that is believed is not the one of this login; "" if it is.
func (t *trusted) misfit(token, nonce string) string {
	var claims Claims
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1]) // it was believed: it has three parts
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return "the claims cannot be read"
	}
	said, _ := claims["nonce"].(string)
	party, named := claims["azp"]
	switch {
	case claims["iss"] != t.URL:
		return "the token is of another issuer"
	case !claims.has("aud", t.Login.ClientID):
		return "the token is for another client"
	case named && party != t.Login.ClientID:
		return "the token was given to another client"
	case nonce == "" || subtle.ConstantTimeCompare([]byte(said), []byte(nonce)) != 1:
		return "the token is of another login: it has not our nonce"
	}
	return ""
}

// declined is what to say when an issuer lets somebody not in.
func (t *trusted) declined(code, description string) error {
	remedy := "log in again; if that does not help, tell whoever runs this installation"
	switch code {
	case "access_denied", "login_required", "interaction_required", "consent_required", "account_selection_required":
		remedy = "log in again and agree there; if you are not let in, ask whoever looks after your account with " + t.Login.Label
	case "server_error", "temporarily_unavailable":
		remedy = "try again in a moment"
	case "invalid_request", "unauthorized_client", "unsupported_response_type", "invalid_scope":
		remedy = "tell whoever runs this installation: the client id, the redirect URL or the scopes are not as " + t.Login.Label + " knows them"
	}
	text := t.Login.Label + " says: " + printable(code)
	if description != "" {
		text += ": " + printable(description)
	}
	return fault.New(fault.Forbidden, text, fault.Remedy(remedy))
}

// undone is what to say when a code got no token.
func (t *trusted) undone(err error) error {
	refused, is := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case errors.Is(err, errBusy):
		return fault.New(fault.Unavailable, "too many people log in at once", fault.RetryAfter(exchangeWait), fault.Remedy("try again in a moment"), fault.Cause(err))
	case is && refused.ErrorCode == "invalid_grant":
		return fault.New(fault.Forbidden, "this login has ended already, or took too long", fault.Remedy("log in again"), fault.Cause(err))
	case is && refused.ErrorCode != "":
		return fault.New(fault.Unavailable, t.Login.Label+" says: "+printable(refused.ErrorCode), fault.Remedy("tell whoever runs this installation: the client id or its secret is not as "+t.Login.Label+" knows it"), fault.Cause(err))
	}
	return fault.New(fault.Unavailable, t.Login.Label+" does not answer as it should", fault.Remedy("log in again in a moment; if that does not help, tell whoever runs this installation: the server's log says more"), fault.Cause(err))
}

// summary is an error for the log: whole answers do not belong there.
func summary(err error) string {
	if refused, is := errors.AsType[*oauth2.RetrieveError](err); is && refused.Response != nil {
		return strings.TrimSpace(fmt.Sprintf("the token endpoint answers %s %s %s", refused.Response.Status, printable(refused.ErrorCode), printable(refused.ErrorDescription)))
	}
	return printable(err.Error())
}

// printable is somebody else's text as it may be shown and logged.
func printable(text string) string {
	const most = 200
	text = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}
