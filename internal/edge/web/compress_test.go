package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestGzipped(t *testing.T) {
	t.Parallel()

	t.Run("every piece can be read before the next one is written", func(t *testing.T) {
		t.Parallel()
		var sent bytes.Buffer
		w := newGzipped(&sent, newCompressors())
		var reader *gzip.Reader
		for _, text := range []string{"id: 1\ndata: <p>one</p>\n\n", ": \n\n", "id: 2\ndata: <p>two</p>\n\n"} {
			_, err := io.WriteString(w, text)
			require.NoError(t, err)
			if reader == nil {
				reader, err = gzip.NewReader(&sent)
				require.NoError(t, err)
			}
			got := make([]byte, len(text))
			_, err = io.ReadFull(reader, got)
			require.NoError(t, err)
			require.Equal(t, text, string(got))
		}
		require.NoError(t, w.Close())
		rest, err := io.ReadAll(reader)
		require.NoError(t, err, "with a right end")
		require.Empty(t, rest)
	})

	t.Run("pieces one after the other are one body", func(t *testing.T) {
		t.Parallel()
		with := newCompressors()
		rapid.Check(t, func(t *rapid.T) {
			pieces := rapid.SliceOfN(rapid.SliceOf(rapid.Byte()), 1, 5).Draw(t, "pieces")
			var sent, whole bytes.Buffer
			w := newGzipped(&sent, with)
			for _, p := range pieces {
				_, err := w.Write(p)
				require.NoError(t, err)
				whole.Write(p)
			}
			require.NoError(t, w.Close())
			reader, err := gzip.NewReader(&sent)
			require.NoError(t, err)
			reader.Multistream(false) // browsers read one
			got, err := io.ReadAll(reader)
			require.NoError(t, err)
			require.True(t, bytes.Equal(whole.Bytes(), got))
			require.Zero(t, sent.Len())
		})
	})
}

func TestScriptsInOneFile(t *testing.T) {
	t.Parallel()
	f, err := readFiles()
	require.NoError(t, err)
	body := string(f.bodies[path.Base(f.byName["htmx.min.js"])].body)
	require.Contains(t, body, "initialize()")
	require.Contains(t, body, `registerExtension("sse"`, "htmx does not wait for what comes in a file of its own, and the page would not be live")
}
