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

// A session is a cookie with the credential of the login, encrypted so that the browser cannot
// read it. Servers store nothing: a revoked key ends its sessions on all servers.
const (
	sessionCookie = "servo_session"
	sessionLife   = 12 * time.Hour
	sessionInfo   = "servo/ui/session/1" // derives a key of its own from the secret
	maxCredential = 2900                 // bytes; encryption adds a third, and browsers store cookies of up to 4 KiB
)

// session is a login.
type session struct {
	ID         string    `json:"i"` // identifies its live pages
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
		return nil, fmt.Errorf("derive the session key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("derive the session key: %w", err)
	}
	s.aead, err = cipher.NewGCMWithRandomNonce(block)
	return s.aead, err
}

// seal encrypts the value of a cookie; it is valid for the cookie of that name only.
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

// open decrypts a cookie. It reports whether the cookie exists and is valid.
func (s *sessions) open(r *http.Request, name string, value any) (bool, error) {
	held, err := r.Cookie(name)
	if err != nil {
		return false, nil //nolint:nilerr // without a cookie
	}
	aead, err := s.cipher(r.Context())
	if err != nil {
		return false, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(held.Value)
	if err != nil {
		return false, nil //nolint:nilerr // not a cookie of this installation
	}
	raw, err := aead.Open(nil, nil, sealed, []byte(name))
	return err == nil && json.Unmarshal(raw, value) == nil, nil
}

// begin sets the cookie of a new session.
func (s *sessions) begin(ctx context.Context, w http.ResponseWriter, credential string, now time.Time) error {
	sealed, err := s.seal(ctx, sessionCookie, session{ID: uuid.NewString(), Credential: credential, Until: now.Add(sessionLife)})
	if err != nil {
		return err
	}
	http.SetCookie(w, cookie(sessionCookie, sealed, int(sessionLife/time.Second), s.secure))
	return nil
}

// end deletes the cookie.
func (s *sessions) end(w http.ResponseWriter) {
	http.SetCookie(w, cookie(sessionCookie, "", -1, s.secure))
}

// cookie is a cookie that scripts cannot read and other sites do not send. It is Secure on encrypted
// connections; a browser would drop it on a plain one, on loopback or behind a proxy.
func cookie(name, value string, age int, secure bool) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/ui", MaxAge: age, HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode} //nolint:gosec // see above
}

// of is the session of a request; without a credential it is not valid.
func (s *sessions) of(r *http.Request, now time.Time) (session, error) {
	var opened session
	if is, err := s.open(r, sessionCookie, &opened); err != nil || !is || !now.Before(opened.Until) {
		return session{}, err
	}
	return opened, nil
}
