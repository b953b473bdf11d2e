package commit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/blob"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
)

// Step is a point of the protocol. Tests stop a writer at each of them.
type Step string

// The steps, in their order.
const (
	Uploading     Step = "uploading"      // in the middle of a file
	FilesWritten  Step = "files written"  // all files, no metadata
	MetadataThere Step = "metadata there" // metadata, no marker
	Committed     Step = "committed"      // the marker; the report is still to be sent
)

// Writer commits versions to a store.
type Writer struct {
	Store *blob.Store
	// At is called at each step; an error stops the writer there. Nil does nothing.
	At func(Step) error
}

// Local is the output of an attempt on the worker's disk.
type Local struct {
	Dir      string
	Format   quality.Format
	Rows     int64
	Metadata output.Metadata
}

// Files lists the files of a directory, by their names below it. It refuses links, devices and names
// that a store could interpret, and an empty directory.
func Files(dir string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if !entry.Type().IsRegular() {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("output file %.100q is not a regular file", name), fault.Field("output"), fault.Remedy("write files, not links or devices"))
		}
		if err := output.CheckName(name); err != nil {
			return err
		}
		if names = append(names, name); len(names) > output.MaxFiles {
			return fault.New(fault.LimitExceeded, fmt.Sprintf("the output has more than %d files", output.MaxFiles), fault.Field("output"),
				fault.Remedy("write fewer, larger files"), fault.Value("limit", output.MaxFiles))
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		return nil, fault.New(fault.InvalidArgument, "the output has no files", fault.Field("output"), fault.Remedy("write at least one file to the output directory, also if it has no rows"))
	}
	return names, err
}

// Write uploads the files of an attempt and commits them.
func (w *Writer) Write(ctx context.Context, a output.Attempt, local Local) (output.Marker, error) {
	names, err := Files(local.Dir)
	if err != nil {
		return output.Marker{}, err
	}
	prefix := a.Prefix()
	files := make([]output.File, 0, len(names))
	for _, name := range names {
		stored, err := w.upload(ctx, prefix+name, filepath.Join(local.Dir, filepath.FromSlash(name)))
		if err != nil {
			return output.Marker{}, err
		}
		files = append(files, output.File{Name: name, Bytes: stored.Bytes, SHA256: stored.SHA256})
	}
	if err := w.at(FilesWritten); err != nil {
		return output.Marker{}, err
	}
	metadata, err := w.put(ctx, prefix+output.MetadataName, local.Metadata, output.MaxMetadata)
	if err != nil {
		return output.Marker{}, err
	}
	if err := w.at(MetadataThere); err != nil {
		return output.Marker{}, err
	}
	m := output.NewMarker(a, local.Format, files, local.Rows, metadata.SHA256)
	if _, err := w.put(ctx, prefix+output.MarkerName, m, output.MaxMarkerBytes); err != nil {
		return output.Marker{}, err
	}
	return m, w.at(Committed)
}

func (w *Writer) at(step Step) error {
	if w.At == nil {
		return nil
	}
	return w.At(step)
}

// upload streams one file.
func (w *Writer) upload(ctx context.Context, to, from string) (blob.Object, error) {
	f, err := os.Open(from) //nolint:gosec // the worker chose the path
	if err != nil {
		return blob.Object{}, err
	}
	defer func() { _ = f.Close() }()
	out, err := w.Store.NewWriter(ctx, to)
	if err != nil {
		return blob.Object{}, err
	}
	if _, err := io.Copy(out, &stepping{r: f, at: func() error { return w.at(Uploading) }}); err != nil {
		out.Abort()
		return blob.Object{}, err
	}
	return out.Close()
}

// stepping calls a function after the first part of a file was read.
type stepping struct {
	r     io.Reader
	at    func() error
	begun bool
}

func (s *stepping) Read(p []byte) (int, error) {
	if s.begun {
		if err := s.at(); err != nil {
			return 0, err
		}
	}
	s.begun = true
	return s.r.Read(p)
}

func (w *Writer) put(ctx context.Context, path string, value any, limit int) (blob.Object, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return blob.Object{}, err
	}
	if len(data) > limit {
		return blob.Object{}, fault.New(fault.LimitExceeded, fmt.Sprintf("%s has %d bytes, the limit is %d", filepath.Base(path), len(data), limit),
			fault.Remedy("write fewer files or columns"), fault.Value("limit", limit))
	}
	return w.Store.Put(ctx, path, data)
}

// Read returns the marker and the metadata of a committed version. It verifies that they belong to
// the attempt and that all files exist with their sizes.
func Read(ctx context.Context, store *blob.Store, a output.Attempt) (output.Marker, output.Metadata, error) {
	var metadata output.Metadata
	data, err := store.Get(ctx, a.Prefix()+output.MarkerName, output.MaxMarkerBytes)
	if err != nil {
		return output.Marker{}, metadata, err
	}
	m, err := output.ParseMarker(data, a)
	if err != nil {
		return output.Marker{}, metadata, err
	}
	data, err = store.Get(ctx, a.Prefix()+output.MetadataName, output.MaxMetadata)
	if err != nil {
		return output.Marker{}, metadata, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != m.Metadata {
		return output.Marker{}, metadata, fault.New(fault.InvalidArgument, output.MetadataName+" does not match its digest", fault.Field("output"), fault.Remedy("let a new attempt write the output"))
	}
	if err := json.Unmarshal(data, &metadata); err != nil {
		return output.Marker{}, metadata, fault.New(fault.InvalidArgument, output.MetadataName+": "+err.Error(), fault.Field("output"))
	}
	stored := map[string]int64{}
	for o, err := range store.List(ctx, a.Prefix()) {
		if err != nil {
			return output.Marker{}, metadata, err
		}
		stored[strings.TrimPrefix(o.Path, a.Prefix())] = o.Bytes
	}
	for _, f := range m.Files {
		if size, there := stored[f.Name]; !there || size != f.Bytes {
			return output.Marker{}, metadata, fault.New(fault.InvalidArgument, fmt.Sprintf("file %q is missing or has another size than its marker lists", f.Name), fault.Field("output"),
				fault.Remedy("let a new attempt write the output"))
		}
	}
	return m, metadata, nil
}

// Fetch downloads the files of a version to a directory and verifies their digests. It returns their
// paths.
func Fetch(ctx context.Context, store *blob.Store, m output.Marker, dir string) ([]string, error) {
	paths := make([]string, 0, len(m.Files))
	for _, f := range m.Files {
		if err := output.CheckName(f.Name); err != nil {
			return nil, err
		}
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := fetch(ctx, store, m.Prefix()+f.Name, path, f); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func fetch(ctx context.Context, store *blob.Store, from, to string, f output.File) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // the asset's own process reads it
		return err
	}
	in, err := store.NewReader(ctx, from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // likewise
	if err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum), io.LimitReader(in, f.Bytes+1))
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if n != f.Bytes || hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return fault.New(fault.InvalidArgument, fmt.Sprintf("input file %q does not match its digest", f.Name), fault.Remedy("restore the blob store, or produce the input again"))
	}
	return nil
}

// Discard deletes the files of an attempt whose version no reader may open, the marker first.
func Discard(ctx context.Context, store *blob.Store, a output.Attempt) (int, error) {
	if err := store.Delete(ctx, a.Prefix()+output.MarkerName); err != nil {
		return 0, err
	}
	return store.DeletePrefix(ctx, a.Prefix())
}
