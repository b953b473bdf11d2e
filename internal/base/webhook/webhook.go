// Package webhook posts signed messages to URLs that users have configured. The packages that send
// messages decide what is sent, to which receivers, and whether a failed call is retried.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/netguard"
)

// The limits of a receiver.
const (
	maxURL      = 2000
	secretBytes = 32
	// Timeout is how long one call may take.
	Timeout = 10 * time.Second
	maxBody = 64 << 10 // of a response
)

// NewSecret returns a new key that signs the messages to one receiver.
func NewSecret() []byte {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails: crypto/rand panics instead
	return secret
}

// SecretText formats a secret for the receiver.
func SecretText(secret []byte) string { return "whsec_" + base64.StdEncoding.EncodeToString(secret) }

// Sign returns the signature of a message, in the form of the Standard Webhooks convention.
func Sign(secret []byte, messageID string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(messageID + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Wait returns the backoff after a number of failed attempts: it doubles after each, up to longest.
func Wait(tries int, first, longest time.Duration) time.Duration {
	for range tries {
		if first *= 2; first >= longest {
			return longest
		}
	}
	return min(first, longest)
}

// ValidateURL checks the URL of a receiver.
func ValidateURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURL || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Fragment != "" {
		return fault.Invalid("url", fmt.Sprintf("%.100q is not a valid webhook URL", text), "use http or https, up to 2000 bytes, without user and fragment: https://hooks.example.com/servo")
	}
	return nil
}

// Message is one call.
type Message struct {
	URL    string
	ID     string // the same for each attempt
	Secret []byte
	Body   []byte
}

// Sender calls receivers.
type Sender struct {
	agent  string
	client *http.Client
}

// NewSender returns a sender that calls URLs that the guard allows; the version is for the User-Agent.
func NewSender(version string, guard *netguard.Guard) *Sender {
	return &Sender{agent: "servo/" + version, client: netguard.New(netguard.Options{Guard: guard, Timeout: Timeout, MaxBody: maxBody})}
}

// Close closes idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Post sends a message, signed at a time, and returns why it was not accepted: "" if the receiver
// responded with 2xx.
func (s *Sender) Post(ctx context.Context, m Message, at time.Time) (failure string) {
	_, failure = s.Send(ctx, m, at)
	return failure
}

// Send is Post that also returns the status of the response, such as "200 OK". The body of the
// response is discarded: the receiver may be a server that the caller cannot reach.
func (s *Sender) Send(ctx context.Context, m Message, at time.Time) (status, failure string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return "", err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", s.agent)
	request.Header.Set("Webhook-Id", m.ID)
	request.Header.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	request.Header.Set("Webhook-Signature", Sign(m.Secret, m.ID, at, m.Body))
	response, err := s.client.Do(request)
	if err != nil {
		return "", err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection can be reused
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return response.Status, fmt.Sprintf("answered %s", response.Status)
	}
	return response.Status, ""
}
