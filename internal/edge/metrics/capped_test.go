package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func counters(limit int) *capped[int, int] {
	return newCapped[int](limit, func() int { return 0 })
}

// scrape adds up what Prometheus would: of each series, what it has grown by since it was
// last seen, all of it if it is new.
type scrape struct {
	seen  map[int]int
	grown int
}

const otherKey = -1

func (s *scrape) look(t interface {
	require.TestingT
	Helper()
}, c *capped[int, int],
) {
	t.Helper()
	now := map[int]int{otherKey: c.other}
	for key, h := range c.own {
		now[key] = h.value
	}
	for key, value := range now {
		require.GreaterOrEqual(t, value, s.seen[key], "a series never goes down while it is reported")
		s.grown += value - s.seen[key]
	}
	s.seen = now
	c.turn()
}

func TestCapped(t *testing.T) {
	t.Parallel()

	t.Run("there are never more values than the cap and one, and together they have counted everything", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			limit := rapid.IntRange(1, 8).Draw(t, "limit")
			c, s, total := counters(limit), &scrape{}, 0
			s.look(t, c)
			for range rapid.IntRange(1, 12).Draw(t, "scrapes") {
				for range rapid.IntRange(0, 200).Draw(t, "between them") {
					value, _ := c.of(rapid.IntRange(0, 40).Draw(t, "key"))
					*value++
					total++
				}
				require.LessOrEqual(t, len(c.own), limit)
				require.LessOrEqual(t, len(c.rest.counts), c.rest.most)
				s.look(t, c)
			}
			require.Equal(t, total, s.grown)
		})
	})

	t.Run("a key that has become large gets a value of its own, however many small ones there are", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			limit := rapid.IntRange(1, 8).Draw(t, "limit")
			before := rapid.IntRange(0, 100).Draw(t, "volume of the first")
			c := counters(limit)
			for key := range limit {
				for range before {
					c.of(key)
				}
			}
			const large = 1000
			turns := 0
			for own := false; !own; turns++ {
				require.Less(t, turns, 12, "it takes as many scrapes as the weight of the past is halved in")
				c.turn()
				for i := range 100 {
					c.of(limit + i) // many small ones
					_, own = c.of(large)
				}
			}
		})
	})

	t.Run("keys of the same size keep their places", func(t *testing.T) {
		t.Parallel()
		c := counters(2)
		for range 20 {
			for key := range 4 {
				c.of(key)
			}
			require.Empty(t, c.turn())
		}
		require.Contains(t, c.own, 0)
		require.Contains(t, c.own, 1)
	})

	t.Run("a wave of new keys takes a tenth of the places at a time", func(t *testing.T) {
		t.Parallel()
		c := counters(50)
		for key := range 50 {
			c.of(key)
		}
		c.turn()
		for key := range 50 {
			for range 10 {
				c.of(100 + key)
			}
		}
		require.Len(t, c.turn(), 50/share+1)
	})

	t.Run("what is forgotten leaves its place", func(t *testing.T) {
		t.Parallel()
		c := counters(2)
		for key := range 4 {
			c.of(key)
		}
		c.drop(func(key int) bool { return key%2 == 1 })
		require.Len(t, c.own, 1)
		require.Len(t, c.rest.counts, 1)
	})
}

func TestSketch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 10).Draw(t, "most")
		s, exact := newSketch[int](most), map[int]int{}
		added := rapid.SliceOfN(rapid.IntRange(0, 20), 0, 300).Draw(t, "keys")
		for _, key := range added {
			s.add(key)
			exact[key]++
			require.LessOrEqual(t, len(s.counts), most)
		}
		for key, n := range exact {
			require.LessOrEqual(t, s.counts[key], n, "it never reports too much")
			if n > len(added)/(most+1) {
				require.Contains(t, s.counts, key, "what is frequent is in it")
			}
		}
	})
}
