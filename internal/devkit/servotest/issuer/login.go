package issuer

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Client is an application that receives tokens of people who have logged in.
type Client struct {
	ID       string
	Secret   string // "" is a public client
	Redirect string // where browsers are sent back to, and nowhere else
}

// provider is the part of an issuer at which people log in.
type provider struct {
	mu       sync.Mutex
	clients  map[string]Client
	person   map[string]any // token claims of the person at the browser
	declines url.Values     // instead of a code
	codes    map[string]grant
	answer   http.HandlerFunc // instead of tokens
}

// grant is what a code stands for. It is good for one use.
type grant struct {
	client, redirect, nonce, challenge string

	claims map[string]any
}

// Register lets people log in for a client.
func (i *Issuer) Register(c Client) {
	i.logins.mu.Lock()
	defer i.logins.mu.Unlock()
	if i.logins.clients == nil {
		i.logins.clients = map[string]Client{}
	}
	i.logins.clients[c.ID] = c
}

// LogIn sets the person at the browser, by the token claims of the next ID tokens.
func (i *Issuer) LogIn(claims map[string]any) {
	i.logins.mu.Lock()
	defer i.logins.mu.Unlock()
	i.logins.person, i.logins.declines = claims, nil
}

// Decline refuses all logins from now on, with a reason.
func (i *Issuer) Decline(code, description string) {
	i.logins.mu.Lock()
	defer i.logins.mu.Unlock()
	i.logins.declines = url.Values{"error": {code}, "error_description": {description}}
}

// Answer sets the answer to requests for tokens; nil is the correct one.
func (i *Issuer) Answer(answer http.HandlerFunc) {
	i.logins.mu.Lock()
	defer i.logins.mu.Unlock()
	i.logins.answer = answer
}

// login answers for the two endpoints of logins.
func (i *Issuer) login(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" {
		i.tokens(w, r)
		return
	}
	i.authorize(w, r)
}

// authorize serves the login page and its redirect.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.logins.mu.Lock()
	defer i.logins.mu.Unlock()
	query := r.URL.Query()
	client, known := i.logins.clients[query.Get("client_id")]
	if !known || query.Get("redirect_uri") != client.Redirect { // an unknown client is not redirected
		http.Error(w, "no such client, or not its redirect URI: "+query.Get("redirect_uri"), http.StatusBadRequest)
		return
	}
	for name, right := range map[string]bool{
		"response_type":         query.Get("response_type") == "code",
		"scope":                 slices.Contains(strings.Fields(query.Get("scope")), "openid"),
		"state":                 query.Get("state") != "",
		"nonce":                 query.Get("nonce") != "",
		"code_challenge":        len(query.Get("code_challenge")) == 43,
		"code_challenge_method": query.Get("code_challenge_method") == "S256",
	} {
		if !right {
			http.Error(w, "this "+name+" will not do: "+query.Get(name), http.StatusBadRequest)
			return
		}
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<!DOCTYPE html><title>Accounts</title><main><h1>Accounts</h1><p>" + html.EscapeString(client.ID) +
			" wants to know who you are.</p><form method=post><button id=agree>Log in</button></form></main>")) // who asked has gone
		return
	}
	answer := url.Values{}
	if i.logins.declines != nil {
		maps.Copy(answer, i.logins.declines)
	} else {
		code := rand.Text()
		if i.logins.codes == nil {
			i.logins.codes = map[string]grant{}
		}
		i.logins.codes[code] = grant{client: client.ID, redirect: client.Redirect, nonce: query.Get("nonce"), challenge: query.Get("code_challenge"), claims: i.logins.person}
		answer.Set("code", code)
	}
	answer.Set("state", query.Get("state"))
	answer.Set("iss", i.URL)
	http.Redirect(w, r, client.Redirect+"?"+answer.Encode(), http.StatusSeeOther)
}

// tokens gives tokens for a code.
func (i *Issuer) tokens(w http.ResponseWriter, r *http.Request) {
	i.logins.mu.Lock()
	answer := i.logins.answer
	i.logins.mu.Unlock()
	if answer != nil { // without the lock: it may take its time
		answer(w, r)
		return
	}
	i.logins.mu.Lock()
	defer i.logins.mu.Unlock()
	refuse := func(status int, code, description string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": description}) // who asked has gone
	}
	id, secret, basic := r.BasicAuth()
	if basic {
		id, _ = url.QueryUnescape(id) // what is not escaped is not the client's
		secret, _ = url.QueryUnescape(secret)
	} else {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if client, known := i.logins.clients[id]; !known || client.Secret != secret || client.Secret == "" && basic {
		refuse(http.StatusUnauthorized, "invalid_client", "no such client, or not its secret")
		return
	}
	granted, good := i.logins.codes[r.PostFormValue("code")]
	delete(i.logins.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	switch {
	case r.Method != http.MethodPost || r.PostFormValue("grant_type") != "authorization_code":
		refuse(http.StatusBadRequest, "unsupported_grant_type", "")
	case !good:
		refuse(http.StatusBadRequest, "invalid_grant", "no such code, or it was used")
	case granted.client != id:
		refuse(http.StatusBadRequest, "invalid_grant", "the code is another client's")
	case granted.redirect != r.PostFormValue("redirect_uri"):
		refuse(http.StatusBadRequest, "invalid_grant", "not the redirect URI of the code")
	case granted.challenge != base64.RawURLEncoding.EncodeToString(sum[:]):
		refuse(http.StatusBadRequest, "invalid_grant", "not the verifier of the code")
	default:
		claims := map[string]any{"aud": id, "nonce": granted.nonce}
		maps.Copy(claims, granted.claims)
		token, err := i.signed(claims)
		if err != nil {
			refuse(http.StatusInternalServerError, "server_error", err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 3600, "id_token": token}) // who asked has gone
	}
}
