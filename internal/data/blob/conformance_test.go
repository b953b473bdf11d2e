package blob

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcp"

	"go.arco.dev/servo/internal/base/fault"
)

// subject is one kind of store under test.
type subject struct {
	open    func(t *testing.T, o Options) *Store
	presign bool         // the store can presign
	partial bool         // the fake server stores what it received of an aborted upload
	client  *http.Client // reaches presigned URLs
}

func fileStore(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), "file://"+t.TempDir(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func s3Store(t *testing.T, o Options) *Store {
	t.Helper()
	server := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithAutoBucket(true)).Server())
	t.Cleanup(server.Close)
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(server.URL), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	})
	bucket, err := s3blob.OpenBucket(t.Context(), client, "outputs", nil)
	require.NoError(t, err)
	s := newStore(bucket, "", o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func gcsStore(t *testing.T, o Options) (*Store, *http.Client) {
	t.Helper()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "outputs"})
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	client := server.HTTPClient()
	bucket, err := gcsblob.OpenBucket(t.Context(), &gcp.HTTPClient{Client: *client}, "outputs", &gcsblob.Options{GoogleAccessID: "servo@example.com", PrivateKey: private})
	require.NoError(t, err)
	s := newStore(bucket, "", o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, client
}

func subjects(t *testing.T) map[string]subject {
	t.Helper()
	return map[string]subject{
		"file": {open: fileStore},
		"s3":   {open: s3Store, presign: true, client: http.DefaultClient},
		"gs": {open: func(t *testing.T, o Options) *Store {
			t.Helper()
			s, _ := gcsStore(t, o)
			return s
		}, partial: true},
	}
}

func paths(t *testing.T, s *Store, prefix string) []string {
	t.Helper()
	var found []string
	for o, err := range s.List(t.Context(), prefix) {
		require.NoError(t, err)
		found = append(found, o.Path)
	}
	return found
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, sub := range subjects(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, sub)
		})
	}
}

func conform(t *testing.T, sub subject) {
	t.Helper()

	t.Run("a written object is readable at once, whole and in parts", func(t *testing.T) {
		t.Parallel()
		s := sub.open(t, Options{})
		data := bytes.Repeat([]byte("0123456789"), 200_000)
		o, err := s.Put(t.Context(), "a/b/data.bin", data)
		require.NoError(t, err)
		sum := sha256.Sum256(data)
		require.Equal(t, Object{Path: "a/b/data.bin", Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}, o)
		read, err := s.Get(t.Context(), "a/b/data.bin", 4<<20)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, read))
		r, err := s.NewRangeReader(t.Context(), "a/b/data.bin", 1_000_005, 7)
		require.NoError(t, err)
		part, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, "5678901", string(part))
		stat, err := s.Stat(t.Context(), "a/b/data.bin")
		require.NoError(t, err)
		require.Equal(t, int64(len(data)), stat.Bytes)
	})

	t.Run("a second write replaces the first", func(t *testing.T) {
		t.Parallel()
		s := sub.open(t, Options{})
		for _, text := range []string{"first", "second"} {
			_, err := s.Put(t.Context(), "x", []byte(text))
			require.NoError(t, err)
			read, err := s.Get(t.Context(), "x", 100)
			require.NoError(t, err)
			require.Equal(t, text, string(read))
		}
	})

	t.Run("a list contains what is below its prefix, in order", func(t *testing.T) {
		t.Parallel()
		s := sub.open(t, Options{})
		for _, path := range []string{"a/2", "a/1", "ab/1", "a/c/3", "b"} {
			_, err := s.Put(t.Context(), path, []byte(path))
			require.NoError(t, err)
		}
		require.Equal(t, []string{"a/1", "a/2", "a/c/3"}, paths(t, s, "a/"))
		require.Empty(t, paths(t, s, "none/"))
		n, err := s.DeletePrefix(t.Context(), "a/")
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"ab/1", "b"}, paths(t, s, ""))
	})

	t.Run("a missing object is NOT_FOUND, and its deletion no error", func(t *testing.T) {
		t.Parallel()
		s := sub.open(t, Options{})
		_, err := s.Get(t.Context(), "none", 10)
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
		_, err = s.Stat(t.Context(), "none")
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
		require.NoError(t, s.Delete(t.Context(), "none"))
	})

	t.Run("an aborted, oversized or cancelled write leaves nothing", func(t *testing.T) {
		t.Parallel()
		s := sub.open(t, Options{MaxObject: 1 << 20})
		w, err := s.NewWriter(t.Context(), "aborted")
		require.NoError(t, err)
		_, err = w.Write([]byte("half"))
		require.NoError(t, err)
		w.Abort()

		_, err = s.Copy(t.Context(), "large", io.LimitReader(zeros{}, 1<<20+1))
		require.True(t, fault.Is(err, fault.LimitExceeded), "%v", err)

		ctx, cancel := context.WithCancel(t.Context())
		w, err = s.NewWriter(ctx, "cancelled")
		require.NoError(t, err)
		_, err = w.Write([]byte("half"))
		require.NoError(t, err)
		cancel()
		_, err = w.Close()
		require.Error(t, err)
		if !sub.partial {
			require.Empty(t, paths(t, s, ""))
		}
	})

	t.Run("a small object is read only up to the limit", func(t *testing.T) {
		t.Parallel()
		s := sub.open(t, Options{})
		_, err := s.Put(t.Context(), "x", make([]byte, 101))
		require.NoError(t, err)
		_, err = s.Get(t.Context(), "x", 100)
		require.True(t, fault.Is(err, fault.LimitExceeded), "%v", err)
		_, err = s.Get(t.Context(), "x", 101)
		require.NoError(t, err)
	})

	t.Run("hostile paths are refused by every call", func(t *testing.T) {
		t.Parallel()
		s := sub.open(t, Options{})
		for _, path := range []string{"", "/etc/passwd", "../x", "a/../../x", "a/./b", "a//b", "a/", "a\\b", "a\x00b", "a\nb", "a/b.attrs", strings.Repeat("x", MaxPath+1), "a/\xff"} {
			_, err := s.Put(t.Context(), path, nil)
			require.True(t, fault.Is(err, fault.InvalidArgument), "%q: %v", path, err)
			_, err = s.NewReader(t.Context(), path)
			require.True(t, fault.Is(err, fault.InvalidArgument), "%q: %v", path, err)
			require.True(t, fault.Is(s.Delete(t.Context(), path), fault.InvalidArgument), path)
			_, err = s.Presign(t.Context(), path, http.MethodGet, time.Minute)
			require.True(t, fault.Is(err, fault.InvalidArgument), "%q: %v", path, err)
		}
	})

	t.Run("a presigned URL reads or writes one object", func(t *testing.T) {
		t.Parallel()
		s := sub.open(t, Options{})
		if !sub.presign {
			if s.dir != "" {
				_, err := s.Presign(t.Context(), "a/x", http.MethodPut, time.Minute)
				require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
			}
			return
		}
		presigned(t, s, sub.client)
	})
}

// presigned uploads and downloads an object by presigned URLs.
func presigned(t *testing.T, s *Store, client *http.Client) {
	t.Helper()
	put, err := s.Presign(t.Context(), "a/x", http.MethodPut, time.Minute)
	require.NoError(t, err)
	require.Contains(t, put, "a/x", "the URL names the one object")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, put, strings.NewReader("presigned"))
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	read, err := s.Get(t.Context(), "a/x", 100)
	require.NoError(t, err)
	require.Equal(t, "presigned", string(read))

	get, err := s.Presign(t.Context(), "a/x", http.MethodGet, time.Minute)
	require.NoError(t, err)
	request, err = http.NewRequestWithContext(t.Context(), http.MethodGet, get, http.NoBody)
	require.NoError(t, err)
	response, err = client.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "presigned", string(body))

	_, err = s.Presign(t.Context(), "a/x", http.MethodDelete, time.Minute)
	require.True(t, fault.Is(err, fault.InvalidArgument), "%v", err)
	_, err = s.Presign(t.Context(), "a/x", http.MethodGet, 25*time.Hour)
	require.True(t, fault.Is(err, fault.InvalidArgument), "%v", err)
}

func TestPresignGoogle(t *testing.T) {
	t.Parallel()
	s, _ := gcsStore(t, Options{})
	signed, err := s.Presign(t.Context(), "a/x", http.MethodPut, time.Minute)
	require.NoError(t, err)
	require.Contains(t, signed, "https://storage.googleapis.com/outputs/a/x?")
	require.Contains(t, signed, "Signature=")
}

func TestOpen(t *testing.T) {
	t.Parallel()

	t.Run("a URL without a known scheme is refused", func(t *testing.T) {
		t.Parallel()
		for _, address := range []string{"", "blobs", "ftp://host/x", "file://relative/x", "file:x", "s3://bucket/../x"} {
			_, err := Open(t.Context(), address, Options{})
			require.True(t, fault.Is(err, fault.InvalidArgument), "%q: %v", address, err)
		}
	})

	t.Run("a directory is created, survives reopening, and keeps no temporary files", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "new", "blobs")
		for i := range 2 {
			s, err := Open(t.Context(), "file://"+dir, Options{})
			require.NoError(t, err)
			_, err = s.Put(t.Context(), fmt.Sprintf("a/%d", i), []byte("x"))
			require.NoError(t, err)
			require.Len(t, paths(t, s, ""), i+1)
			require.NoError(t, s.Close())
		}
		entries, err := os.ReadDir(filepath.Join(dir, "a"))
		require.NoError(t, err)
		require.Len(t, entries, 2)
	})

	t.Run("a deleted prefix leaves no directories", func(t *testing.T) {
		t.Parallel()
		s := fileStore(t, Options{})
		_, err := s.Put(t.Context(), "a/b/c/d", nil)
		require.NoError(t, err)
		_, err = s.DeletePrefix(t.Context(), "a/b/")
		require.NoError(t, err)
		_, err = os.Stat(filepath.Join(s.dir, "a", "b"))
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

func TestCheckUnder(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckUnder("a/b/", "a/b/c"))
	for _, path := range []string{"a/bc", "a/b", "a/b/../c", "a/c/b"} {
		require.Error(t, CheckUnder("a/b/", path), path)
	}
	require.Error(t, CheckUnder("a/b", "a/b/c"), "a prefix without slash also matches a/bc")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
