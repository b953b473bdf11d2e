package web

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
)

// A session is a cookie with the key that somebody has logged in with, sealed so that neither
// the browser nor who finds the cookie can read it. Servers keep nothing: a key that is revoked
// ends its sessions, on all of them.
const (
	sessionCookie = "servo_session"
	sessionLife   = 12 * time.Hour
	sessionInfo   = "servo/ui/session/1" // so that no other use of the secret has this key
	maxCredential = 2900                 // bytes of a key: sealed it is a third longer, and browsers keep cookies of up to 4 KiB
)

// session is who is logged in.
type session struct {
	ID         string    `json:"i"` // by which its live pages are counted and ended
	Credential string    `json:"c"`
	Until      time.Time `json:"u"`
}

type sessions struct {
	secret func(ctx context.Context) ([]byte, error)
	secure bool

	mu   sync.Mutex
	aead cipher.AEAD
}

func (s *sessions) cipher(ctx context.Context) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aead != nil {
		return s.aead, nil
	}
	secret, err := s.secret(ctx)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, secret, nil, sessionInfo, 32)
	if err != nil {
		return nil, fmt.Errorf("make the key of sessions: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("make the key of sessions: %w", err)
	}
	s.aead, err = cipher.NewGCMWithRandomNonce(block)
	return s.aead, err
}

// seal makes the value of a cookie, which is good for the cookie of that name alone.
func (s *sessions) seal(ctx context.Context, name string, value any) (string, error) {
	aead, err := s.cipher(ctx)
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, raw, []byte(name))), nil
}

// open reads what was sealed. It reports whether there is something, and it is one of ours.
func (s *sessions) open(r *http.Request, name string, value any) (bool, error) {
	held, err := r.Cookie(name)
	if err != nil {
		return false, nil //nolint:nilerr // there is none
	}
	aead, err := s.cipher(r.Context())
	if err != nil {
		return false, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(held.Value)
	if err != nil {
		return false, nil //nolint:nilerr // not one of ours
	}
	raw, err := aead.Open(nil, nil, sealed, []byte(name))
	return err == nil && json.Unmarshal(raw, value) == nil, nil
}

// begin gives the browser a session.
func (s *sessions) begin(ctx context.Context, w http.ResponseWriter, credential string, now time.Time) error {
	sealed, err := s.seal(ctx, sessionCookie, session{ID: uuid.NewString(), Credential: credential, Until: now.Add(sessionLife)})
	if err != nil {
		return err
	}
	http.SetCookie(w, cookie(sessionCookie, sealed, int(sessionLife/time.Second), s.secure))
	return nil
}

// end takes it back.
func (s *sessions) end(w http.ResponseWriter) {
	http.SetCookie(w, cookie(sessionCookie, "", -1, s.secure))
}

// cookie is one that no script reads and no other site sends. It is Secure where the address is
// encrypted; a server in plain text, on loopback or behind a proxy, could not keep one that is.
func cookie(name, value string, age int, secure bool) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/ui", MaxAge: age, HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode} //nolint:gosec // see above
}

// of is a request's session; one without a credential is none that holds.
func (s *sessions) of(r *http.Request, now time.Time) (session, error) {
	var opened session
	if is, err := s.open(r, sessionCookie, &opened); err != nil || !is || !now.Before(opened.Until) {
		return session{}, err
	}
	return opened, nil
}
