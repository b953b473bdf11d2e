package api

import (
	"strconv"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

const (
	defaultPageSize = 20
	maxPageSize     = 100
)

// page is what a request asks of a list: how much, and after what.
type page struct {
	size  int
	after string // the position of the last entry seen; "" is before the first
}

// pageOf reads which page a request is for. Its token was opened before (see paged): what is
// left of it is a position of this very list.
func pageOf(req intercept.ListRequest) (page, error) {
	p := page{size: int(req.GetPageSize()), after: req.GetPageToken()}
	if p.size == 0 {
		p.size = defaultPageSize
	}
	if p.size < 0 || p.size > maxPageSize { // the contract says so too; what a list reads has a bound whoever calls it
		return page{}, fault.New(fault.InvalidArgument, "is not 1 to 100", fault.Field("page_size"), fault.Remedy("ask for less at a time"))
	}
	return p, nil
}

// next is the token that goes on after a position. It is sealed on the way out.
func (p page) next(position string) string { return position }

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
		return nil, intercept.BadPageToken("is not a page token")
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
		return 0, intercept.BadPageToken("is not a page token")
	}
	return int32(last), nil
}
