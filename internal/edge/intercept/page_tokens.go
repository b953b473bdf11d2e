package api

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

	"go.arco.dev/servo/internal/store"
)

// sealer signs page tokens, and opens those that it or another server of the installation has
// signed. Every call goes through it (see paged), so no list has to think of it and none can
// forget it: what a list gives and gets are positions.
type sealer struct {
	read func(ctx context.Context) ([]byte, error)

	mu     sync.Mutex
	secret []byte // once it was read; it never changes
}

func newSealer(s *store.Store) *sealer {
	return &sealer{read: func(ctx context.Context) ([]byte, error) { return s.InstallationSecret(ctx, store.PageTokenSecret) }}
}

// key is the secret. It is read once; who comes while it cannot be read is told so, and the
// next one tries again.
func (s *sealer) key(ctx context.Context) ([]byte, error) {
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

// Prepare reads what all calls need, so that no first one pays for it.
func (s *Server) Prepare(ctx context.Context) error {
	_, err := s.tokens.key(ctx)
	return err
}

// A token is its version, a signature and a position.
const (
	tokenVersion   = 2
	signatureBytes = 16 // of 32: nobody can try 2^128 of them
)

// seal makes a position of a list a token that only this list takes.
func seal(secret []byte, list listDigest, position string) string {
	raw := make([]byte, 0, 1+signatureBytes+len(position))
	raw = append(raw, tokenVersion)
	raw = append(raw, sign(secret, list, position)...)
	return base64.RawURLEncoding.EncodeToString(append(raw, position...))
}

// unseal gives the position of a token of this list.
func unseal(secret []byte, list listDigest, token string) (string, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	rest, known := bytes.CutPrefix(raw, []byte{tokenVersion})
	if err != nil || !known || len(rest) <= signatureBytes {
		return "", badToken("is not a page token")
	}
	position := string(rest[signatureBytes:])
	if !hmac.Equal(rest[:signatureBytes], sign(secret, list, position)) {
		return "", badToken("belongs to another list, or was changed")
	}
	return position, nil
}

func sign(secret []byte, list listDigest, position string) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte{tokenVersion})
	mac.Write(list[:]) // of a fixed length: where it ends and the position begins is never in doubt
	mac.Write([]byte(position))
	return mac.Sum(nil)[:signatureBytes]
}

// listDigest stands for a list: the call, the tenant, and what is asked for besides the page.
type listDigest [sha256.Size]byte

func digestOf(req listRequest) (listDigest, error) {
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

// listAnswer is a page.
type listAnswer interface {
	proto.Message
	GetNextPageToken() string
}

// paged opens the page token of a request before its handler, and seals that of the answer.
func (s *Server) paged(handler grpc.UnaryHandler) grpc.UnaryHandler {
	return func(ctx context.Context, req any) (any, error) {
		asked, ok := req.(listRequest)
		if !ok {
			return handler(ctx, req)
		}
		if token := asked.GetPageToken(); token != "" {
			position, err := s.openToken(ctx, asked, token)
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
		secret, err := s.tokens.key(ctx)
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

func (s *Server) openToken(ctx context.Context, req listRequest, token string) (string, error) {
	secret, err := s.tokens.key(ctx)
	if err != nil {
		return "", err
	}
	list, err := digestOf(req)
	if err != nil {
		return "", err
	}
	return unseal(secret, list, token)
}

// setText sets a field that every list has; TestListsHavePages says that it does.
func setText(message proto.Message, field protoreflect.Name, text string) {
	m := message.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName(field), protoreflect.ValueOfString(text))
}
