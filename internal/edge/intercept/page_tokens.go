package intercept

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/store"
)

// tokenSealer signs page tokens, and verifies those that a server of the installation has signed.
// The chain applies it to every list (see sealPages), so that handlers see positions only and no
// handler can forget it.
type tokenSealer struct {
	read func(ctx context.Context) ([]byte, error)

	mu     sync.Mutex
	secret []byte // nil until it is read; it never changes
}

func newTokenSealer(s *store.Store) *tokenSealer {
	return &tokenSealer{read: func(ctx context.Context) ([]byte, error) { return s.InstallationSecret(ctx, store.PageTokenSecret) }}
}

// key returns the secret. It is read once. A failed read is reported to the call that needs it, and
// the next call reads again.
func (s *tokenSealer) key(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secret == nil {
		secret, err := s.read(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the secret of page tokens: %w", err)
		}
		s.secret = secret
	}
	return s.secret, nil
}

// Prepare reads what all calls need, so that the first call does not pay for it.
func (c *Chain) Prepare(ctx context.Context) error {
	_, err := c.tokens.key(ctx)
	return err
}

// A token is its version, a signature and a position.
const (
	tokenVersion   = 2
	signatureBytes = 16 // of 32: 2^128 cannot be guessed
)

// seal turns a position of a list into a token that only this list accepts.
func seal(secret []byte, list listDigest, position string) string {
	raw := make([]byte, 0, 1+signatureBytes+len(position))
	raw = append(raw, tokenVersion)
	raw = append(raw, sign(secret, list, position)...)
	return base64.RawURLEncoding.EncodeToString(append(raw, position...))
}

// unseal returns the position of a token of this list.
func unseal(secret []byte, list listDigest, token string) (string, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	rest, known := bytes.CutPrefix(raw, []byte{tokenVersion})
	if err != nil || !known || len(rest) <= signatureBytes {
		return "", BadPageToken("is not a page token")
	}
	position := string(rest[signatureBytes:])
	if !hmac.Equal(rest[:signatureBytes], sign(secret, list, position)) {
		return "", BadPageToken("is the token of another list, or was modified")
	}
	return position, nil
}

func sign(secret []byte, list listDigest, position string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte{tokenVersion})
	mac.Write(list[:]) // of a fixed length, so that the position begins at a known place
	mac.Write([]byte(position))
	return mac.Sum(nil)[:signatureBytes]
}

// listDigest identifies a list: the call, the tenant and the filters.
type listDigest [sha256.Size]byte

func digestOf(req ListRequest) (listDigest, error) {
	bare := proto.Clone(req).ProtoReflect()
	fields := bare.Descriptor().Fields()
	bare.Clear(fields.ByName("page_size"))
	bare.Clear(fields.ByName("page_token"))
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(bare.Interface())
	if err != nil {
		return listDigest{}, fmt.Errorf("digest a request: %w", err)
	}
	return sha256.Sum256(append([]byte(bare.Descriptor().FullName()+"\n"), raw...)), nil
}

// ListRequest is a request for a page of a list.
type ListRequest interface {
	proto.Message
	GetPageSize() int32
	GetPageToken() string
}

// listAnswer is a page.
type listAnswer interface {
	proto.Message
	GetNextPageToken() string
}

// sealPages opens the page token of a request before its handler, and seals that of the answer.
func (c *Chain) sealPages(handler grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, req any) (any, error) {
		asked, ok := req.(ListRequest)
		if !ok {
			return handler(ctx, req)
		}
		if token := asked.GetPageToken(); token != "" {
			position, err := c.openToken(ctx, asked, token)
			if err != nil {
				return nil, err
			}
			opened := proto.Clone(asked)
			setText(opened, "page_token", position)
			req = opened
		}
		answer, err := handler(ctx, req)
		if err != nil {
			return nil, err
		}
		given, ok := answer.(listAnswer)
		if !ok || given.GetNextPageToken() == "" {
			return answer, nil
		}
		secret, err := c.tokens.key(ctx)
		if err != nil {
			return nil, err
		}
		list, err := digestOf(asked)
		if err != nil {
			return nil, err
		}
		setText(given, "next_page_token", seal(secret, list, given.GetNextPageToken()))
		return answer, nil
	}
}

func (c *Chain) openToken(ctx context.Context, req ListRequest, token string) (string, error) {
	secret, err := c.tokens.key(ctx)
	if err != nil {
		return "", err
	}
	list, err := digestOf(req)
	if err != nil {
		return "", err
	}
	return unseal(secret, list, token)
}

// setText sets a field that every list has, which TestListsHavePages checks.
func setText(message proto.Message, field protoreflect.Name, text string) {
	m := message.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName(field), protoreflect.ValueOfString(text))
}

// BadPageToken is the error of a page token that a list does not accept.
func BadPageToken(message string) error {
	return fault.New(fault.InvalidArgument, message, fault.Field("page_token"),
		fault.Remedy("send the next_page_token of the previous page with the same filters, or none for the first page"))
}
