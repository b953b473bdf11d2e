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

// Limits of logins.
const (
	maxTokens    = 128 << 10 // bytes of the answer to a code
	maxCode      = 4 << 10
	maxExchanges = 10 // concurrent, per issuer, so that forged codes cannot flood it
	exchangeWait = 5 * time.Second
)

// Choice is an issuer that people can log in with.
type Choice struct {
	Name  string // parameter of Begin
	Label string // of the button
}

// onlyIssuer is the name of a single unnamed issuer in URLs.
const onlyIssuer = "issuer"

func (i Issuer) slug() string {
	if i.Name == "" {
		return onlyIssuer // each of several issuers has a name
	}
	return i.Name
}

// Choices returns the issuers that people can log in with.
func (v *Verifier) Choices() (choices []Choice) {
	if v == nil {
		return nil
	}
	for _, t := range v.logins {
		choices = append(choices, Choice{Name: t.slug(), Label: t.Login.Label})
	}
	return choices
}

// loginClient is the OAuth client of this server at an issuer.
type loginClient struct {
	secret string
	http   *http.Client
	seats  chan struct{}
}

// newLoginClient derives the client from the one for keys. It follows no redirects, because it sends a
// secret.
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

// Attempt is a login in progress. Until the browser comes back it is stored where only a server can
// read or change it.
type Attempt struct {
	Issuer   string `json:"i"`
	State    string `json:"s"` // proves that the answer is to this attempt
	Nonce    string `json:"n"` // proves that the token is for this attempt
	Verifier string `json:"v"` // proves that the code is exchanged by the server that began
	Redirect string `json:"r"` // where the issuer sends the browser
}

// Begin returns the URL for a browser that logs in, and the attempt to store until it comes back.
func (v *Verifier) Begin(ctx context.Context, name, redirect string) (address string, a Attempt, err error) {
	t := v.loginOf(func(t *trusted) bool { return t.slug() == name })
	if t == nil {
		return "", Attempt{}, fault.New(fault.NotFound, "no login named "+printable(name), fault.Remedy("choose a login on the login page"))
	}
	config, _, err := t.oauth(ctx, redirect)
	if err != nil {
		v.log.WarnContext(ctx, "cannot begin a login", "issuer", t.URL, "error", err)
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

// Finish verifies the answer that an issuer sends through the browser, and returns the ID token. It
// checks that the answer is to this attempt before it reads or shows anything else.
func (v *Verifier) Finish(ctx context.Context, a Attempt, answer url.Values) (token string, err error) {
	t := v.loginOf(func(t *trusted) bool { return t.URL == a.Issuer })
	if t == nil || a.State == "" || subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(a.State)) != 1 {
		return "", NotBegun()
	}
	config, found, err := t.oauth(ctx, a.Redirect)
	if err != nil {
		v.log.WarnContext(ctx, "cannot finish a login", "issuer", t.URL, "error", err)
		return "", err
	}
	// RFC 9207: with several issuers, one of them must not forward the answer of another.
	if from := answer.Get("iss"); from != t.URL && (from != "" || found.NamesSelf) {
		v.log.WarnContext(ctx, "a login was answered by another issuer", "issuer", t.URL, "answered_by", printable(from))
		return "", NotBegun()
	}
	if code := answer.Get("error"); code != "" {
		v.log.InfoContext(ctx, "an issuer refused a login", "issuer", t.URL, "error", printable(code), "description", printable(answer.Get("error_description")))
		return "", t.declined(code, answer.Get("error_description"))
	}
	if code := answer.Get("code"); code == "" || len(code) > maxCode {
		return "", NotBegun()
	}
	token, err = t.exchange(ctx, config, answer.Get("code"), a.Verifier)
	if err != nil {
		v.log.WarnContext(ctx, "cannot finish a login", "issuer", t.URL, "error", summary(err))
		return "", t.exchangeFailed(err)
	}
	_, reason, err := v.Verify(ctx, token)
	if err != nil {
		return "", err
	}
	if reason == "" {
		reason = t.notOfLogin(token, a.Nonce)
	}
	if reason != "" {
		v.log.WarnContext(ctx, "the token of a login is refused", "issuer", t.URL, "reason", reason)
		return "", fault.New(fault.Forbidden, t.Login.Label+" returned a token that this server does not accept", fault.Remedy("log in again; if the error persists, ask your operator to check the server's log"))
	}
	return token, nil
}

// NotBegun is the error of an answer without a pending login in the browser. Other sites can send a
// browser here with any parameters.
func NotBegun() error {
	return fault.New(fault.Forbidden, "this is not the end of a login that was begun in this browser within the last minutes", fault.Remedy("log in again"))
}

// oauth returns the OAuth configuration of the issuer, whose discovery document may have to be fetched.
func (t *trusted) oauth(ctx context.Context, redirect string) (*oauth2.Config, published, error) {
	held := t.keys.current()
	if held == nil {
		t.keys.demand(ctx)
		held = t.keys.current()
	}
	if held == nil {
		return nil, published{}, fault.New(fault.Unavailable, t.Login.Label+" is unreachable", fault.RetryAfter(demandEach), fault.Remedy("retry in a moment, or log in with an API key"))
	}
	if err := held.canLogIn(t.URL); err != nil {
		return nil, published{}, fault.New(fault.Unavailable, t.Login.Label+" does not support logins", fault.Remedy("log in with an API key, and ask your operator to check the server's log"), fault.Cause(err))
	}
	style := oauth2.AuthStyleInHeader // the default of the specification
	if t.login.secret == "" || len(held.Methods) > 0 && !slices.Contains(held.Methods, "client_secret_basic") && slices.Contains(held.Methods, "client_secret_post") {
		style = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: t.Login.ClientID, ClientSecret: t.login.secret, RedirectURL: redirect, Scopes: t.Login.Scopes,
		Endpoint: oauth2.Endpoint{AuthURL: held.Authorize, TokenURL: held.Token, AuthStyle: style},
	}, held.published, nil
}

// canLogIn reports what a discovery document lacks for logins.
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

// exchange exchanges a code for the ID token.
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

// notOfLogin returns why a valid token is not of this login; empty if it is.
func (t *trusted) notOfLogin(token, nonce string) string {
	var claims Claims
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1]) // a verified token has three parts
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return "cannot parse the token claims"
	}
	got, _ := claims["nonce"].(string)
	party, named := claims["azp"]
	switch {
	case claims["iss"] != t.URL:
		return "the token is of another issuer"
	case !claims.has("aud", t.Login.ClientID):
		return "the token is for another client"
	case named && party != t.Login.ClientID:
		return "the token was given to another client"
	case nonce == "" || subtle.ConstantTimeCompare([]byte(got), []byte(nonce)) != 1:
		return "the token is of another login: its nonce differs"
	}
	return ""
}

// declined is the error of a login that the issuer refused.
func (t *trusted) declined(code, description string) error {
	remedy := "log in again; if the error persists, ask your operator"
	switch code {
	case "access_denied", "login_required", "interaction_required", "consent_required", "account_selection_required":
		remedy = "log in again and give your consent; if that fails, ask the administrator of your account with " + t.Login.Label
	case "server_error", "temporarily_unavailable":
		remedy = "retry in a moment"
	case "invalid_request", "unauthorized_client", "unsupported_response_type", "invalid_scope":
		remedy = "ask your operator to compare the client id, the redirect URL and the scopes with those of " + t.Login.Label
	}
	text := t.Login.Label + " refused the login: " + printable(code)
	if description != "" {
		text += ": " + printable(description)
	}
	return fault.New(fault.Forbidden, text, fault.Remedy(remedy))
}

// exchangeFailed is the error of a code that could not be exchanged.
func (t *trusted) exchangeFailed(err error) error {
	refused, is := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case errors.Is(err, errBusy):
		return fault.New(fault.Unavailable, "too many concurrent logins", fault.RetryAfter(exchangeWait), fault.Remedy("retry in a moment"), fault.Cause(err))
	case is && refused.ErrorCode == "invalid_grant":
		return fault.New(fault.Forbidden, "this login has already ended or took too long", fault.Remedy("log in again"), fault.Cause(err))
	case is && refused.ErrorCode != "":
		return fault.New(fault.Unavailable, t.Login.Label+" refused the login: "+printable(refused.ErrorCode), fault.Remedy("ask your operator to compare the client id and its secret with those of "+t.Login.Label), fault.Cause(err))
	}
	return fault.New(fault.Unavailable, t.Login.Label+" returned an unexpected answer", fault.Remedy("retry in a moment; if the error persists, ask your operator to check the server's log"), fault.Cause(err))
}

// summary shortens an error for the log, which must not contain whole answers.
func summary(err error) string {
	if refused, is := errors.AsType[*oauth2.RetrieveError](err); is && refused.Response != nil {
		return strings.TrimSpace(fmt.Sprintf("the token endpoint returned %s %s %s", refused.Response.Status, printable(refused.ErrorCode), printable(refused.ErrorDescription)))
	}
	return printable(err.Error())
}

// printable returns foreign text that is safe to show and log.
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
