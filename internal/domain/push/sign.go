package push

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
)

const (
	nonceBytes = 16
	// signatureSize is the size that the signature adds to an envelope: its member, and 43 characters.
	signatureSize = len(`,"signature":""`) + 43
	// MaxSkew is how far the clock of the signer may be ahead of the clock of the verifier.
	MaxSkew = time.Minute
)

// ErrRefused is the error of every refused signature. Its text is the same for every cause, so that an
// attacker learns nothing from it.
var ErrRefused = errors.New("the signature is not valid")

// Refusal is a refused signature. Its text is that of ErrRefused; the reason is for the log and must
// not be sent to clients.
type Refusal struct{ reason string }

// Error is the same text for every reason.
func (*Refusal) Error() string { return ErrRefused.Error() }

// Unwrap makes errors.Is(err, ErrRefused) true.
func (*Refusal) Unwrap() error { return ErrRefused }

// Reason returns the cause, for the log.
func (r *Refusal) Reason() string { return r.reason }

// ReasonOf returns the cause of a refusal, for the log; "" for other errors.
func ReasonOf(err error) string {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.reason
	}
	return ""
}

func refuse(reason string) error { return &Refusal{reason: reason} }

// Sign completes and writes an envelope: it fills in contract, idempotency key and auth. The key signs
// for the envelope's pool.
func Sign(e Envelope, key Key, now time.Time, lifetime time.Duration, random io.Reader) ([]byte, error) {
	if !key.usable(now) {
		return nil, fault.New(fault.Conflict, "the signing key is no longer valid", fault.Remedy("sign with the newest key"), fault.Value("key", key.ID))
	}
	var nonce [nonceBytes]byte
	if _, err := io.ReadFull(random, nonce[:]); err != nil {
		return nil, fmt.Errorf("read randomness for an envelope: %w", err)
	}
	issued := now.UTC().Truncate(time.Second) // whole seconds, which every language can parse
	e.Contract, e.IdempotencyKey = Contract, IdempotencyKey(e.Task, e.Attempt, e.Token)
	if len(e.Parameters) == 0 {
		e.Parameters = json.RawMessage("{}")
	}
	if e.Upstream == nil {
		e.Upstream = []Upstream{}
	}
	e.Auth = Auth{KeyID: key.ID, IssuedAt: issued, ExpiresAt: issued.Add(lifetime), Nonce: base64.RawURLEncoding.EncodeToString(nonce[:])}
	unsigned, err := canon.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write an envelope: %w", err)
	}
	if size := len(unsigned) + signatureSize; size > MaxEnvelope {
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("the envelope has %d bytes, the limit is %d", size, MaxEnvelope),
			fault.Field("parameters"), fault.Remedy("send large values by reference"))
	}
	e.Auth.Signature = signature(key.Worker(e.Pool).Secret, unsigned)
	signed, err := canon.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write an envelope: %w", err)
	}
	return signed, nil
}

func signature(secret Secret, message []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(message)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// matches compares a signature in constant time. The encoded form is compared, so that each signature
// has one spelling. Without a key it does the same work.
func matches(secret Secret, known bool, message []byte, presented string) bool {
	if !known {
		secret = make(Secret, secretBytes)
	}
	equal := hmac.Equal([]byte(signature(secret, message)), []byte(presented))
	return equal && known
}

// Verify parses and verifies an envelope. Every byte counts: fields that this version does not know,
// and the form itself, which must be canonical (two spellings of a number may be one number to the
// signature and two to a reader). An invalid envelope is refused with ErrRefused; an unknown contract
// is a fault, since the sender has the key.
func Verify(raw []byte, keys Lookup, now time.Time) (Envelope, error) {
	if len(raw) > MaxEnvelope {
		return Envelope{}, refuse("the envelope is too large")
	}
	canonical, err := canon.JSON(raw)
	if err != nil {
		return Envelope{}, refuse("the envelope is not valid JSON: " + err.Error())
	}
	if !bytes.Equal(canonical, raw) {
		return Envelope{}, refuse("the envelope is not in canonical form")
	}
	unsigned, auth, err := withoutSignature(raw)
	if err != nil {
		return Envelope{}, refuse(err.Error())
	}
	secret, known := keys(auth.KeyID, now)
	switch valid := matches(secret, known, unsigned, auth.Signature); {
	case !known:
		return Envelope{}, refuse("the key is unknown, expired or revoked")
	case !valid:
		return Envelope{}, refuse("the signature does not match")
	case !now.Before(auth.ExpiresAt):
		return Envelope{}, refuse("the envelope has expired")
	case auth.IssuedAt.After(now.Add(MaxSkew)):
		return Envelope{}, refuse("the envelope was issued in the future")
	}
	return read(raw)
}

// withoutSignature returns the signed bytes and the auth of an envelope.
func withoutSignature(raw []byte) ([]byte, Auth, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, Auth{}, errors.New("the envelope is not an object")
	}
	var auth Auth
	var authMembers map[string]json.RawMessage
	if json.Unmarshal(members["auth"], &auth) != nil || json.Unmarshal(members["auth"], &authMembers) != nil {
		return nil, Auth{}, errors.New("auth is missing or invalid")
	}
	if _, signed := authMembers["signature"]; !signed {
		return nil, Auth{}, errors.New("the signature is missing")
	}
	delete(authMembers, "signature")
	rest, err := canon.Marshal(authMembers)
	if err != nil {
		return nil, Auth{}, err
	}
	members["auth"] = rest
	unsigned, err := canon.Marshal(members)
	return unsigned, auth, err
}

// read decodes a verified envelope.
func read(raw []byte) (Envelope, error) {
	var version struct {
		Contract int `json:"contract"`
	}
	if err := json.Unmarshal(raw, &version); err != nil || version.Contract != Contract {
		return Envelope{}, fault.New(fault.InvalidArgument, fmt.Sprintf("unknown contract %d", version.Contract), fault.Field("contract"),
			fault.Remedy("use a worker of the server's version"), fault.Value("known", Contract))
	}
	var e Envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return Envelope{}, fault.New(fault.InvalidArgument, "the envelope does not match the contract: "+err.Error(),
			fault.Remedy("use a worker of the server's version"), fault.Cause(err))
	}
	return e, nil
}
