package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/store"
)

// What tests of the edge look at from outside.
var (
	JSONOf       = jsonOf
	JSONOfStruct = jsonOfStruct
	ValueOf      = valueOf
	ETA          = etaOf
)

// Handle writes the handle of a lease.
func Handle(key store.TaskKey, attempt int32, token int64) string {
	return handle{TaskKey: key, attempt: attempt, token: token}.encode()
}

// ReadHandle reads one.
func ReadHandle(text string) (key store.TaskKey, attempt int32, token int64, err error) {
	h, err := decodeHandle(text)
	return h.TaskKey, h.attempt, h.token, err
}

// Seal is the token that goes on after a position of a list.
func Seal(secret []byte, req listRequest, position string) (string, error) {
	list, err := digestOf(req)
	return seal(secret, list, position), err
}

// Unseal is the position that a request goes on after.
func Unseal(secret []byte, req listRequest) (string, error) {
	list, err := digestOf(req)
	if err != nil {
		return "", err
	}
	return unseal(secret, list, req.GetPageToken())
}

// Cut shortens texts to a page.
func Cut(req listRequest, entries []string) (kept []string, next string, err error) {
	p, err := pageOf(req)
	if err != nil {
		return nil, "", err
	}
	kept, next = cut(p, entries, func(s string) int { return len(s) }, func(s string) string { return s })
	return kept, next, nil
}

// MaxPageBytes bounds a page.
const MaxPageBytes = maxPageBytes

// Check checks a request, Rules does so by the contract alone, and Plain reports whether that
// was needed.
func Check(req any) error           { return newValidator().check(req) }
func Rules(req proto.Message) error { return newValidator().rules.Validate(req) }
func Plain(req proto.Message) bool  { return plain(req) }

// Explain is what a caller learns of an error.
func (s *Server) Explain(ctx context.Context, err error) error { return s.explain(ctx, "test", err) }

// GatherUses makes the last uses of keys be written at once.
func (s *Server) GatherUses() { s.callers.gather = 0 }

// Audited is what the audit keeps of a request.
func Audited(req proto.Message) (subject, request string) {
	return subjectOf(req), string(auditJSON(req))
}

// RateClasses says which calls share a limit.
func RateClasses() map[string]ratelimit.Class { return rateClasses() }

// SetRateClock gives the limiter another clock. Nothing may have been called yet.
func (s *Server) SetRateClock(now func() time.Time) { s.rates.now = now }

// WithoutSecrets is a message as it is kept.
var WithoutSecrets = withoutSecrets

// SecretField says that a field is not kept.
var SecretField = secretField

// SecretName is what secrets are called.
var SecretName = secretName

// TakesOwnKey says which calls see to their keys themselves.
var TakesOwnKey = takesOwnKey

// SetPatience says how long a call waits for its twin. Nothing may have been called yet.
func (s *Server) SetPatience(d time.Duration) { s.patience = d }
