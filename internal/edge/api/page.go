package api

import (
	"cmp"
	"fmt"
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

// page is the part of a list that a request asks for.
type page struct {
	size  int
	after string // position of the last entry of the previous page; empty for the first page
}

// pageOf returns the page that a request asks for. Interceptors have replaced its token by the
// position of an entry.
func pageOf(req intercept.ListRequest) (page, error) {
	p := page{size: cmp.Or(int(req.GetPageSize()), defaultPageSize), after: req.GetPageToken()}
	if p.size < 0 || p.size > maxPageSize { // the contract has the same rule; presigned calls and tests may skip it
		return page{}, fault.New(fault.InvalidArgument, fmt.Sprintf("%d is out of range", p.size), fault.Field("page_size"),
			fault.Remedy(fmt.Sprintf("use 1 to %d", maxPageSize)))
	}
	return p, nil
}

// maxPageBytes bounds the size of a page, so that the answer fits into a message. A page has at
// least one entry.
const maxPageBytes = 2 << 20

// list reads a page and maps its entries. read returns up to one entry more than the page, position
// identifies an entry in the list's order, and size is the entry's share of maxPageBytes; nil if
// entries are small.
func list[T, P any](req intercept.ListRequest, read func(page) ([]T, error), position func(T) string, size func(T) int, show func(T) (P, error)) (shown []P, next string, err error) {
	return scan(req, func(p page) ([]T, string, error) {
		entries, err := read(p)
		return entries, "", err
	}, position, size, show)
}

// scan is list for reads with a bounded effort. They return fewer entries than the page has, and the
// position to continue from; empty at the end of the list.
func scan[T, P any](req intercept.ListRequest, read func(page) ([]T, string, error), position func(T) string, size func(T) int, show func(T) (P, error)) (shown []P, next string, err error) {
	p, err := pageOf(req)
	if err != nil {
		return nil, "", err
	}
	entries, next, err := read(p)
	if err != nil {
		return nil, "", err
	}
	if kept, last := cut(p, entries, position, size); last != "" {
		entries, next = kept, last
	}
	shown, err = mapEach(entries, show)
	return shown, next, err
}

// cut shortens entries to a page, and returns the position of the last entry if it drops any.
func cut[T any](p page, entries []T, position func(T) string, size func(T) int) (kept []T, last string) {
	n, bytes := 0, 0
	for n < min(len(entries), p.size) {
		if size != nil {
			bytes += size(entries[n])
		}
		if n > 0 && bytes > maxPageBytes {
			break
		}
		n++
	}
	if n == len(entries) {
		return entries, ""
	}
	return entries[:n], position(entries[n-1])
}

// mapEach maps all entries, or returns the first error.
func mapEach[T, P any](entries []T, show func(T) (P, error)) ([]P, error) {
	shown := make([]P, len(entries))
	for i, e := range entries {
		var err error
		if shown[i], err = show(e); err != nil {
			return nil, err
		}
	}
	return shown, nil
}

// mapAll maps all entries.
func mapAll[T, P any](entries []T, show func(T) P) []P {
	shown := make([]P, len(entries))
	for i, e := range entries {
		shown[i] = show(e)
	}
	return shown
}

// sure turns a mapping that cannot fail into one for list.
func sure[T, P any](show func(T) P) func(T) (P, error) {
	return func(e T) (P, error) { return show(e), nil }
}

// idPosition returns the id after which a page begins; nil for the first page.
func idPosition[K id.Kind](p page) (*K, error) {
	if p.after == "" {
		return nil, nil //nolint:nilnil // the first page
	}
	last, err := id.Parse[K]("page_token", p.after)
	if err != nil {
		return nil, notAToken()
	}
	return &last, nil
}

// indexPosition returns the index after which a page begins.
func indexPosition(p page) (int32, error) {
	if p.after == "" {
		return store.BeforeFirst, nil
	}
	last, err := strconv.ParseInt(p.after, 10, 32)
	if err != nil || last < 0 {
		return 0, notAToken()
	}
	return int32(last), nil
}

// notAToken is the error of a position that cannot be parsed.
func notAToken() error { return intercept.BadPageToken("is not a page token") }
