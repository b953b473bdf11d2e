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
	// signatureSize is what the signature adds to an envelope: its member, and 43 characters.
	signatureSize = len(`,"signature":""`) + 43
	// MaxSkew is how far the clock of who signs may be ahead of the clock of who verifies.
	MaxSkew = time.Minute
)

// ErrRefused is what every refusal is. It has one text, whatever the cause: who tries things
// out learns nothing from the answer.
var ErrRefused = errors.New("the signature is not valid")

// Refusal is a refused signature. Its text is that of ErrRefused; the reason is for the log
// and must not be answered to anybody.
type Refusal struct{ reason string }

// Error is the same text for every reason.
func (*Refusal) Error() string { return ErrRefused.Error() }

// Unwrap makes errors.Is(err, ErrRefused) true.
func (*Refusal) Unwrap() error { return ErrRefused }

// Reason is why, for the log.
func (r *Refusal) Reason() string { return r.reason }

// ReasonOf is why an error refuses, for the log; "" if it does not.
func ReasonOf(err error) string {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.reason
	}
	return ""
}

func refuse(reason string) error { return &Refusal{reason: reason} }

// Sign completes an envelope and writes it: contract, idempotency key and auth are filled
// in, the rest is the caller's. The key signs for the envelope's pool.
func Sign(e Envelope, key Key, now time.Time, lifetime time.Duration, random io.Reader) ([]byte, error) {
	if !key.usable(now) {
		return nil, fault.New(fault.Conflict, "the signing key is not valid any more", fault.Remedy("sign with the newest key"), fault.Value("key", key.ID))
	}
	var nonce [nonceBytes]byte
	if _, err := io.ReadFull(random, nonce[:]); err != nil {
		return nil, fmt.Errorf("read randomness for an envelope: %w", err)
	}
	issued := now.UTC().Truncate(time.Second) // whole seconds: every language reads them
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

// matches compares a presented signature in constant time. The encoding is compared as it
// is, so that there is one spelling of each signature. Without a key it does the same work.
func matches(secret Secret, known bool, message []byte, presented string) bool {
	if !known {
		secret = make(Secret, secretBytes)
	}
	equal := hmac.Equal([]byte(signature(secret, message)), []byte(presented))
	return equal && known
}

// Verify reads an envelope as it came and believes it, or not. Every byte counts: fields that
// this version does not know, and the form itself, which must be canonical (two spellings of
// a number may be one number to the signature and two to a reader). What is not believed is
// refused with ErrRefused; a contract that is not known is a fault of its own, since who
// has the key may be told.
func Verify(raw []byte, keys Lookup, now time.Time) (Envelope, error) {
	if len(raw) > MaxEnvelope {
		return Envelope{}, refuse("the envelope is too large")
	}
	canonical, err := canon.JSON(raw)
	if err != nil {
		return Envelope{}, refuse("the envelope is not proper JSON: " + err.Error())
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
		return Envelope{}, refuse("the signature is another")
	case !now.Before(auth.ExpiresAt):
		return Envelope{}, refuse("the envelope has expired")
	case auth.IssuedAt.After(now.Add(MaxSkew)):
		return Envelope{}, refuse("the envelope is from the future")
	}
	return read(raw)
}

// withoutSignature is what was signed, and by whom.
func withoutSignature(raw []byte) ([]byte, Auth, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, Auth{}, errors.New("the envelope is not an object")
	}
	var auth Auth
	var authMembers map[string]json.RawMessage
	if json.Unmarshal(members["auth"], &auth) != nil || json.Unmarshal(members["auth"], &authMembers) != nil {
		return nil, Auth{}, errors.New("auth is missing or not as it should be")
	}
	if _, signed := authMembers["signature"]; !signed {
		return nil, Auth{}, errors.New("there is no signature")
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

// read decodes an envelope that is believed.
func read(raw []byte) (Envelope, error) {
	var version struct {
		Contract int `json:"contract"`
	}
	if err := json.Unmarshal(raw, &version); err != nil || version.Contract != Contract {
		return Envelope{}, fault.New(fault.InvalidArgument, fmt.Sprintf("contract %d is not known", version.Contract), fault.Field("contract"),
			fault.Remedy("use a worker of the server's version"), fault.Value("known", Contract))
	}
	var e Envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return Envelope{}, fault.New(fault.InvalidArgument, "the envelope is not as the contract says: "+err.Error(),
			fault.Remedy("use a worker of the server's version"), fault.Cause(err))
	}
	return e, nil
}
