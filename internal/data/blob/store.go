package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	_ "gocloud.dev/blob/fileblob"  // file://
	_ "gocloud.dev/blob/gcsblob"   // gs://
	_ "gocloud.dev/blob/s3blob"    // s3://
	"gocloud.dev/gcerrors"

	"go.arco.dev/servo/internal/base/fault"
)

// DefaultMaxObject is the maximum size of one object if the options set none.
const DefaultMaxObject = 64 << 30

// MaxPresign is the longest validity of a presigned URL.
const MaxPresign = 24 * time.Hour

// Options of a store.
type Options struct {
	// MaxObject is the maximum size of one object, in bytes.
	MaxObject int64
}

// Store is an open blob store. It is safe for concurrent use.
type Store struct {
	bucket *blob.Bucket
	dir    string // of a file store: its directory, whose entries are synced
	limit  int64
}

// Object is one stored object.
type Object struct {
	Path   string    `json:"path"`
	Bytes  int64     `json:"bytes"`
	SHA256 string    `json:"sha256,omitempty"` // set by writers
	At     time.Time `json:"-"`
}

// Open opens a store by its URL. A path after the bucket is a prefix of all objects. The directory of
// a file URL is created.
func Open(ctx context.Context, address string, o Options) (*Store, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%q is not the URL of a blob store", clip(address)), fault.Field("blob-url"),
			fault.Remedy("write file:///directory, s3://bucket, gs://bucket or azblob://container"))
	}
	switch u.Scheme {
	case "file":
		return openDirectory(ctx, u, o)
	case "s3", "gs", "azblob":
	default:
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("unknown scheme %q of a blob store", clip(u.Scheme)), fault.Field("blob-url"),
			fault.Remedy("choose one of file, s3, gs, azblob"))
	}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		if err := CheckPath(prefix); err != nil {
			return nil, err
		}
		query := u.Query()
		query.Set("prefix", prefix+"/")
		u.Path, u.RawQuery = "", query.Encode()
	}
	bucket, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("open blob store %s: %w", u.Redacted(), err)
	}
	return newStore(bucket, "", o), nil
}

func openDirectory(ctx context.Context, u *url.URL, o Options) (*Store, error) {
	dir := filepath.FromSlash(u.Path)
	if u.Host != "" && u.Host != "." || !filepath.IsAbs(dir) {
		return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("%q has no absolute directory", clip(u.String())), fault.Field("blob-url"),
			fault.Remedy("write three slashes: file:///var/lib/servo/blobs"))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil { //nolint:gosec // the operator names the directory
		return nil, fmt.Errorf("create the directory of a blob store: %w", err)
	}
	// Attributes would double the number of files; the temporary file lies beside the final one,
	// because a rename is atomic only within one file system.
	bucket, err := blob.OpenBucket(ctx, (&url.URL{Scheme: "file", Path: u.Path, RawQuery: "metadata=skip&no_tmp_dir=true"}).String())
	if err != nil {
		return nil, fmt.Errorf("open blob store %s: %w", u.Redacted(), err)
	}
	return newStore(bucket, dir, o), nil
}

func newStore(bucket *blob.Bucket, dir string, o Options) *Store {
	if o.MaxObject <= 0 {
		o.MaxObject = DefaultMaxObject
	}
	return &Store{bucket: bucket, dir: dir, limit: o.MaxObject}
}

// Close releases connections.
func (s *Store) Close() error { return s.bucket.Close() }

// Writer writes one object. The object exists once Close has returned nil. Abort discards it.
type Writer struct {
	w      *blob.Writer
	store  *Store
	path   string
	file   *os.File // of a file store
	sum    hash.Hash
	n      int64
	cancel context.CancelFunc
	err    error
}

// NewWriter starts an object. An object with the same path is replaced by Close.
func (s *Store) NewWriter(ctx context.Context, path string) (*Writer, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	out := &Writer{store: s, path: path, sum: sha256.New(), cancel: cancel}
	w, err := s.bucket.NewWriter(ctx, path, &blob.WriterOptions{
		ContentType: "application/octet-stream", // a type that is set is not guessed from the first bytes
		BeforeWrite: func(as func(any) bool) error {
			as(&out.file)
			return nil
		},
	})
	if err != nil {
		cancel()
		return nil, asFault(err, path)
	}
	out.w = w
	return out, nil
}

// Write appends bytes. It refuses those beyond the size limit.
func (w *Writer) Write(data []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.n+int64(len(data)) > w.store.limit {
		w.err = fault.New(fault.LimitExceeded, fmt.Sprintf("object %q is larger than %d bytes", clip(w.path), w.store.limit),
			fault.Remedy("write several smaller files"), fault.Value("limit", w.store.limit))
		return 0, w.err
	}
	n, err := w.w.Write(data)
	w.n += int64(n)
	w.sum.Write(data[:n])
	if err != nil {
		w.err = asFault(err, w.path)
	}
	return n, w.err
}

// Close stores the object and returns its size and digest.
func (w *Writer) Close() (Object, error) {
	if w.err != nil {
		w.Abort()
		return Object{}, w.err
	}
	defer w.cancel()
	if w.file != nil {
		if err := w.file.Sync(); err != nil {
			w.Abort()
			return Object{}, fmt.Errorf("sync object %s: %w", w.path, err)
		}
	}
	if err := w.w.Close(); err != nil {
		return Object{}, asFault(err, w.path)
	}
	if err := w.store.syncDirectories(w.path); err != nil {
		return Object{}, err
	}
	return Object{Path: w.path, Bytes: w.n, SHA256: hex.EncodeToString(w.sum.Sum(nil))}, nil
}

// Abort discards what was written. It has no effect after Close.
func (w *Writer) Abort() {
	w.cancel()
	_ = w.w.Close()
}

// syncDirectories makes the entry of a file, and those of its directories, durable.
func (s *Store) syncDirectories(path string) error {
	if s.dir == "" {
		return nil
	}
	for parent := filepath.Dir(filepath.FromSlash(path)); ; parent = filepath.Dir(parent) {
		d, err := os.Open(filepath.Join(s.dir, parent)) //nolint:gosec // keys are checked before
		if err != nil {
			return fmt.Errorf("sync directory of %s: %w", path, err)
		}
		err = errors.Join(d.Sync(), d.Close())
		if err != nil {
			return fmt.Errorf("sync directory of %s: %w", path, err)
		}
		if parent == "." {
			return nil
		}
	}
}

// Put stores an object that is in memory.
func (s *Store) Put(ctx context.Context, path string, data []byte) (Object, error) {
	w, err := s.NewWriter(ctx, path)
	if err != nil {
		return Object{}, err
	}
	if _, err := w.Write(data); err != nil {
		w.Abort()
		return Object{}, err
	}
	return w.Close()
}

// Copy stores an object from a reader.
func (s *Store) Copy(ctx context.Context, path string, from io.Reader) (Object, error) {
	w, err := s.NewWriter(ctx, path)
	if err != nil {
		return Object{}, err
	}
	if _, err := io.Copy(w, from); err != nil {
		w.Abort()
		return Object{}, err
	}
	return w.Close()
}

// Get returns a small object whole. One of more than limit bytes is refused.
func (s *Store) Get(ctx context.Context, path string, limit int64) ([]byte, error) {
	r, err := s.NewReader(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, asFault(err, path)
	}
	if int64(len(data)) > limit {
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("object %q is larger than %d bytes", clip(path), limit), fault.Value("limit", limit))
	}
	return data, nil
}

// NewReader opens an object. A missing one is NOT_FOUND.
func (s *Store) NewReader(ctx context.Context, path string) (io.ReadCloser, error) {
	return s.NewRangeReader(ctx, path, 0, -1)
}

// NewRangeReader opens a part of an object; length -1 reads to its end.
func (s *Store) NewRangeReader(ctx context.Context, path string, offset, length int64) (io.ReadCloser, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	r, err := s.bucket.NewRangeReader(ctx, path, offset, length, nil)
	if err != nil {
		return nil, asFault(err, path)
	}
	return r, nil
}

// Stat returns the size of an object. A missing one is NOT_FOUND.
func (s *Store) Stat(ctx context.Context, path string) (Object, error) {
	if err := CheckPath(path); err != nil {
		return Object{}, err
	}
	attributes, err := s.bucket.Attributes(ctx, path)
	if err != nil {
		return Object{}, asFault(err, path)
	}
	return Object{Path: path, Bytes: attributes.Size, At: attributes.ModTime}, nil
}

// List returns the objects below a prefix, in the order of their paths. The prefix ends with a slash;
// the empty prefix lists the whole store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if prefix != "" {
			if err := CheckPath(strings.TrimSuffix(prefix, "/")); err != nil || !strings.HasSuffix(prefix, "/") {
				yield(Object{}, fault.New(fault.InvalidArgument, fmt.Sprintf("%q is not a prefix", clip(prefix)), fault.Remedy("end it with a slash")))
				return
			}
		}
		objects := s.bucket.List(&blob.ListOptions{Prefix: prefix})
		for {
			o, err := objects.Next(ctx)
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(Object{}, asFault(err, prefix))
				return
			case o.IsDir:
			case !yield(Object{Path: o.Key, Bytes: o.Size, At: o.ModTime}, nil):
				return
			}
		}
	}
}

// Delete deletes an object. A missing one is no error.
func (s *Store) Delete(ctx context.Context, path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	if err := s.bucket.Delete(ctx, path); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return asFault(err, path)
	}
	return nil
}

// DeletePrefix deletes all objects below a prefix and returns how many there were.
func (s *Store) DeletePrefix(ctx context.Context, prefix string) (int, error) {
	if prefix == "" {
		return 0, fault.New(fault.InvalidArgument, "a prefix is empty", fault.Remedy("name the prefix of one attempt"))
	}
	n := 0
	for o, err := range s.List(ctx, prefix) {
		if err != nil {
			return n, err
		}
		if err := s.Delete(ctx, o.Path); err != nil {
			return n, err
		}
		n++
	}
	if s.dir != "" {
		s.removeEmptyDirectories(prefix)
	}
	return n, nil
}

// removeEmptyDirectories removes the directory of a deleted prefix and those below it. A directory
// that has files stays.
func (s *Store) removeEmptyDirectories(prefix string) {
	var dirs []string
	root := filepath.Join(s.dir, filepath.FromSlash(prefix))
	_ = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		_ = os.Remove(dirs[i])
	}
}

// Presign returns a URL with which a caller without credentials may GET or PUT one object. A store
// that cannot sign returns UNAVAILABLE.
func (s *Store) Presign(ctx context.Context, path, method string, valid time.Duration) (string, error) {
	if err := CheckPath(path); err != nil {
		return "", err
	}
	if method != http.MethodGet && method != http.MethodPut {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%q cannot be presigned", method), fault.Remedy("presign GET or PUT"))
	}
	if valid <= 0 || valid > MaxPresign {
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("a presigned URL cannot be valid for %s", valid), fault.Remedy("choose up to 24h"))
	}
	signed, err := s.bucket.SignedURL(ctx, path, &blob.SignedURLOptions{Method: method, Expiry: valid})
	if gcerrors.Code(err) == gcerrors.Unimplemented {
		return "", fault.New(fault.Unavailable, "the blob store cannot presign URLs", fault.Remedy("give the worker access to the store, or use s3, gs or azblob"))
	}
	if err != nil {
		return "", asFault(err, path)
	}
	return signed, nil
}

// asFault translates errors of a store that callers distinguish.
func asFault(err error, path string) error {
	if err == nil {
		return nil
	}
	if gcerrors.Code(err) == gcerrors.NotFound {
		return fault.New(fault.NotFound, fmt.Sprintf("no object %q in the blob store", clip(path)), fault.Cause(err))
	}
	return fmt.Errorf("blob store, object %q: %w", clip(path), err)
}
