package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/store"
)

// listRequest is a request for a page.
type listRequest interface {
	proto.Message
	GetPageSize() int32
	GetPageToken() string
}

const defaultPageSize = 20

// page is what a request asks of a list: how much, and after what.
type page struct {
	size  int
	after string // the position of the last entry seen; "" is before the first

	filter filterDigest
}

// pageOf reads which page a request is for.
func pageOf(req listRequest) (page, error) {
	filter, err := digestOf(req)
	if err != nil {
		return page{}, err
	}
	p := page{size: int(req.GetPageSize()), filter: filter}
	if p.size == 0 {
		p.size = defaultPageSize
	}
	if text := req.GetPageToken(); text != "" {
		token, err := decodeToken(text)
		if err != nil {
			return page{}, err
		}
		if token.filter != filter {
			return page{}, badToken("belongs to another list")
		}
		p.after = token.position
	}
	return p, nil
}

// next is the token that goes on after a position.
func (p page) next(position string) string {
	return pageToken{filter: p.filter, position: position}.encode()
}

// filterDigest stands for a list: the call, and what it asks for besides the page.
type filterDigest [16]byte

func digestOf(req listRequest) (filterDigest, error) {
	bare := proto.Clone(req).ProtoReflect()
	fields := bare.Descriptor().Fields()
	bare.Clear(fields.ByName("page_size"))
	bare.Clear(fields.ByName("page_token"))
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(bare.Interface())
	if err != nil {
		return filterDigest{}, fmt.Errorf("digest a request: %w", err)
	}
	sum := sha256.Sum256(append([]byte(bare.Descriptor().FullName()+"\n"), raw...))
	return filterDigest(sum[:16]), nil
}

// pageToken is a place in a list, opaque to its reader.
type pageToken struct {
	filter   filterDigest
	position string
}

const tokenVersion = 1

// encode and decodeToken are the two places to sign tokens and to check the signature.
func (t pageToken) encode() string {
	return base64.RawURLEncoding.EncodeToString(append(append([]byte{tokenVersion}, t.filter[:]...), t.position...))
}

func decodeToken(text string) (pageToken, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	rest, known := bytes.CutPrefix(raw, []byte{tokenVersion})
	if err != nil || !known || len(rest) <= len(filterDigest{}) {
		return pageToken{}, badToken("is not a page token")
	}
	return pageToken{filter: filterDigest(rest[:16]), position: string(rest[16:])}, nil
}

func badToken(message string) error {
	return fault.New(fault.InvalidArgument, message, fault.Field("page_token"),
		fault.Remedy("send the next_page_token of the page before, with the same filter, or none for the first page"))
}

// maxPageBytes bounds what one page carries, so that the answer stays well under the size
// of a message, whatever its entries hold. A page has at least one entry.
const maxPageBytes = 2 << 20

// cut shortens what was read for a page, one more than its size, to what it may hold, and
// gives the position after which to go on; "" if that was all.
func cut[T any](p page, entries []T, sizeOf func(T) int, positionOf func(T) string) ([]T, string) {
	n, bytes := 0, 0
	for n < min(len(entries), p.size) {
		if bytes += sizeOf(entries[n]); n > 0 && bytes > maxPageBytes {
			break
		}
		n++
	}
	if n == len(entries) {
		return entries, ""
	}
	return entries[:n], p.next(positionOf(entries[n-1]))
}

// small is the size of entries that need no counting.
func small[T any](T) int { return 0 }

// idPosition is the id after which a list goes on; nil at its beginning.
func idPosition[K id.Kind](p page) (*K, error) {
	if p.after == "" {
		return nil, nil //nolint:nilnil // the beginning
	}
	last, err := id.Parse[K]("page_token", p.after)
	if err != nil {
		return nil, badToken("is not a page token")
	}
	return &last, nil
}

// indexPosition is the index after which a list goes on.
func indexPosition(p page) (int32, error) {
	if p.after == "" {
		return store.BeforeFirst, nil
	}
	last, err := strconv.ParseInt(p.after, 10, 32)
	if err != nil || last < 0 {
		return 0, badToken("is not a page token")
	}
	return int32(last), nil
}
