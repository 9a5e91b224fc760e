// Tensors whose channels lie next to each other, group by group of neighbouring neurons.
// Included inside a namespace of its own for each instruction set.

// Positions that a group works on before the next one has its turn: few enough that what one reads
// from memory is still there for the other.
constexpr int CHUNK = 64;

// A group is worked on in one pass, besides that of its neighbours.  A neuron whose arithmetic is another
// follows as a row, and with more of them all of the group.
constexpr int MOST_ALONE = 1, MOST_PASSES = 2;

// The work on those of a group's neurons that take one kind of arithmetic.
template <class W>
struct Pass {
  alignas(64) unsigned char ready[sizeof(Lanes<Double, W>)];
  double totals[SUMS][LANES];
  bool member[LANES];
  bool neighbour;  // of gravitation, which only lends the gradients of its coefficients
  int arithmetic;
  ForwardLoop<W> forward;
  BackwardLoops<W> backward;
};

// Fewer channels than this are faster as rows: beside empty lanes, and beside neurons that are done already.
template <class W>
constexpr int LEAST_CHANNELS = sizeof(W) == 4 ? 12 : LANES;
template <class W>
constexpr int LEAST_REST = sizeof(W) == 4 ? 3 : 8;

template <class W>
struct Group {
  int64_t channel;
  int own, channels;  // lanes that are the group's: from, to
  bool member[LANES];  // those of them that are not worked on alone
  bool pulled;
  int passes;
  Pass<W> pass[MOST_PASSES];
  double centres[LANES];
};

// The groups of a part of the channels, and the neurons or whole groups that are worked on as rows.
template <class W>
struct Groups {
  int groups = 0, rows = 0;
  Group<W> group[GROUPS + 1];
  int64_t row[(GROUPS + 1) * LANES][2];  // channels: from, to
};

// Which arithmetic a neuron takes, as a number, or ROW_ONLY if it has none in a group.
constexpr int ROW_ONLY = -1, ARITHMETICS = 2 * ENTIRE;

template <class W>
DEU_INLINE int arithmetic(int kind, int precision) {
  const bool alone = kind == ENTIRE || (sizeof(W) == 4 && precision == DOUBLE);
  return alone ? ROW_ONLY : 2 * kind + (sizeof(W) == 8 || precision == MEDIUM);
}

// That of the wanted neurons of a group, of others ROW_ONLY; the result is the most frequent of them.
template <class W>
static int most_frequent(const Neurons& neurons, int64_t channel, const bool* wanted, int* takes) {
  const unsigned char *kinds = neurons.kinds + channel, *precisions = neurons.precisions + channel;
  int largest = ROW_ONLY, others = 0;
  for (int l = 0; l < LANES; ++l) {
    takes[l] = wanted[l] ? arithmetic<W>(kinds[l], precisions[l]) : ROW_ONLY;
    largest = takes[l] > largest ? takes[l] : largest;
  }
  for (int l = 0; l < LANES; ++l) others += takes[l] != largest && takes[l] != ROW_ONLY;
  if (others == 0) return largest;
  int votes[ARITHMETICS] = {}, most = 0;
  for (int l = 0; l < LANES; ++l)
    if (takes[l] != ROW_ONLY && ++votes[takes[l]] > votes[most]) most = takes[l];
  return most;
}

// A pass for those of the wanted neurons of a group that take the most frequent arithmetic among them;
// which are then no longer wanted.
template <class W>
static void add_pass(const Neurons& neurons, bool neighbour, bool* wanted, Group<W>* group) {
  int takes[LANES];
  const int most = most_frequent<W>(neurons, group->channel, wanted, takes);
  if (most == ROW_ONLY) return;
  Pass<W>& pass = group->pass[group->passes++];
  pass.neighbour = neighbour;
  pass.arithmetic = most;
  for (int l = 0; l < LANES; ++l) {
    pass.member[l] = takes[l] == most;
    wanted[l] &= !pass.member[l];
  }
}

template <class V, bool BACKWARD, class W>
static void make_ready(const Job& job, int64_t channel, Pass<W>* pass) {
  constexpr bool SHORT = sizeof(typename V::T) == 4;
  const int kind = pass->arithmetic / 2;
  const Neurons& neurons = pass->neighbour ? job.neighbours : job.neurons;
  const Column numbers{neurons.numbers + channel, neurons.stride};
  Lanes<V, W>* lanes = new (pass->ready) Lanes<V, W>;
  const Common all = kind == REAL ? set_lanes<REAL>(numbers, job.limits, pass->member, lanes)
                                  : set_lanes<OSCILLATING>(numbers, job.limits, pass->member, lanes);
  const Way way = way_of_all<SHORT>(kind, job.limits.continuous, all);
  if (BACKWARD) {
    pass->backward = pass->neighbour ? backward_loops<V, W, false>(kind, way, all.fast)
                                     : backward_loops<V, W, true>(kind, way, all.fast);
    std::memset(pass->totals, 0, sizeof(pass->totals));
    return;
  }
  bool small = SHORT;
  for (int l = 0; l < LANES; ++l)
    small &= !pass->member[l] || neurons.precisions[channel + l] == SINGLE_CLOSED;
  pass->forward = small ? forward_loop<V, W, SHORT>(kind, way) : forward_loop<V, W, false>(kind, way);
}

template <class W>
static void add_rows(int64_t from, int64_t to, Groups<W>* all) {
  if (all->rows > 0 && all->row[all->rows - 1][1] == from) {
    all->row[all->rows - 1][1] = to;
    return;
  }
  int64_t* row = all->row[all->rows++];
  row[0] = from, row[1] = to;
}

// The neurons from channel + own to channel + channels.
template <bool BACKWARD, class W>
static void add_group(const Job& job, int64_t channel, int own, int channels, Groups<W>* all) {
  Group<W>& group = all->group[all->groups];
  group.channel = channel, group.own = own, group.channels = channels, group.pulled = false, group.passes = 0;
  bool left[LANES] = {}, pulled[LANES] = {};
  for (int l = own; l < channels; ++l) {
    left[l] = true;
    pulled[l] = job.pulled != nullptr && job.pulled[channel + l];
    group.pulled |= pulled[l];
  }
  add_pass(job.neurons, false, left, &group);
  if (BACKWARD && group.pulled) {
    for (int l = 0; l < channels; ++l) pulled[l] &= !left[l];
    add_pass(job.neighbours, true, pulled, &group);
    for (int l = 0; l < channels; ++l) left[l] |= pulled[l];
  }
  int alone = 0;
  for (int l = 0; l < LANES; ++l) alone += left[l];
  if (alone > MOST_ALONE || alone == channels - own) return add_rows(channel + own, channel + channels, all);
  ++all->groups;
  for (int k = 0; k < group.passes; ++k) {
    Pass<W>& pass = group.pass[k];
    for (int l = 0; l < LANES; ++l) pass.member[l] &= !left[l];
    if (sizeof(W) == 8) make_ready<Double, BACKWARD>(job, channel, &pass);
    else if (pass.arithmetic % 2) make_ready<Medium, BACKWARD>(job, channel, &pass);
    else make_ready<Single, BACKWARD>(job, channel, &pass);
  }
  for (int l = 0; l < LANES; ++l) {
    group.member[l] = l >= own && l < channels && !left[l];
    group.centres[l] = 0;
    if (left[l]) add_rows(channel + l, channel + l + 1, all);
  }
}

template <bool BACKWARD, class W>
static void add_groups(const Job& job, const Part& part, Groups<W>* all) {
  all->groups = all->rows = 0;
  int64_t channel = part.channel;
  for (; part.end - channel >= LANES; channel += LANES) add_group<BACKWARD>(job, channel, 0, LANES, all);
  const int rest = static_cast<int>(part.end - channel);
  if (rest == 0) return;
  // Lanes of the group before that are there already are left as they are.
  const bool after_others = channel > part.channel;
  if (rest < (after_others ? LEAST_REST<W> : LEAST_CHANNELS<W>)) return add_rows(channel, part.end, all);
  if (after_others) add_group<BACKWARD>(job, part.end - LANES, LANES - rest, LANES, all);
  else add_group<BACKWARD>(job, channel, 0, rest, all);
}

// A group's elements in the tensor itself, or copied to `copy`, where lanes without a channel are 0.
template <class S, class W>
static Strip<const W> strip_of(const void* base, const Strides& s, const Group<W>& group, int64_t outer, int64_t inner,
                               int count, int64_t ahead, W (*copy)[LANES]) {
  const S* source = at<S>(base, s, outer, group.channel, inner);
  if (sizeof(S) == sizeof(W) && s.channel == 1 && group.channels == LANES)
    return {reinterpret_cast<const W*>(source), s.inner, ahead * s.inner};
  for (int i = 0; i < count; ++i, source += s.inner) {
    DEU_PREFETCH(source + ahead * s.inner);
    if (s.channel == 1 && group.channels == LANES) {
      DEU_SIMD
      for (int l = 0; l < LANES; ++l) copy[i][l] = widen(source[l]);
    } else {
      for (int l = 0; l < LANES; ++l) copy[i][l] = l < group.channels ? widen(source[l * s.channel]) : W(0);
    }
  }
  return {copy[0], LANES, 0};
}

template <class S, class W>
static void put_back(const W (*copy)[LANES], int own, int channels, int count, int64_t ahead, S* target,
                     const Strides& s) {
  for (int i = 0; i < count; ++i, target += s.inner) {
    DEU_PREFETCH(target + ahead * s.inner);
    if (s.channel == 1 && channels - own == LANES) {
      DEU_SIMD
      for (int l = 0; l < LANES; ++l) narrow(copy[i][l], target + l);
    } else {
      for (int l = own; l < channels; ++l) narrow(copy[i][l], target + l * s.channel);
    }
  }
}

template <class W>
static void add_gradients(const Job& job, const Part& part, int64_t channel, const Pass<W>& pass) {
  const Neurons& neurons = pass.neighbour ? job.neighbours : job.neurons;
  alignas(64) double gradients[NUMBERS][LANES];
  pass.backward.gradients({neurons.numbers + channel, neurons.stride}, job.limits, pass.totals, gradients);
  double* sums = (pass.neighbour ? part.neighbour_sums : part.sums) + channel;
  for (int n = 0; n < NUMBERS; ++n, sums += neurons.stride)
    for (int l = 0; l < LANES; ++l) sums[l] += pass.member[l] ? gradients[n][l] : 0;
}

// The groups of a part of the work; the neurons and groups that are left are listed in `all`.
template <class S, bool BACKWARD, class W>
static void work_in_groups(const Job& job, const Part& part, Groups<W>* all) {
  add_groups<BACKWARD>(job, part, all);

  alignas(64) W time[CHUNK][LANES], grad[CHUNK][LANES], result[CHUNK][LANES];
  const Layout& layout = job.layout;
  int64_t count;
  for (int64_t position = part.from; position < part.to; position += count) {
    const int64_t outer = position / layout.inner, inner = position % layout.inner;
    count = part.to - position < CHUNK ? part.to - position : CHUNK;
    if (layout.inner - inner < count) count = layout.inner - inner;
    const int positions = static_cast<int>(count);
    const int64_t ahead = part.to - position > count ? count : 0;
    for (int n = 0; n < all->groups; ++n) {
      Group<W>& group = all->group[n];
      const Strip<const W> t = strip_of<S>(job.t, job.in, group, outer, inner, positions, ahead, time);
      Strip<const W> g = t;
      const bool direct = sizeof(S) == sizeof(W) && job.out.channel == 1 && group.channels == LANES;
      S* const place = const_cast<S*>(at<S>(job.result, job.out, outer, group.channel, inner));
      Strip<W> out{result[0], LANES, 0};
      if (direct) out = {reinterpret_cast<W*>(place), job.out.inner, ahead * job.out.inner};
      if (BACKWARD) g = strip_of<S>(job.g, job.grad, group, outer, inner, positions, ahead, grad);
      for (int k = 0; k < group.passes; ++k) {
        Pass<W>& pass = group.pass[k];
        if (BACKWARD) pass.backward.sums(pass.ready, t, g, out, positions, pass.totals);
        else pass.forward(pass.ready, t, out, positions);
      }
      if (!BACKWARD && group.pulled) {
        for (int i = 0; i < positions; ++i)
          for (int l = 0; l < LANES; ++l) group.centres[l] += static_cast<double>(t.first[i * t.step + l]);
      }
      if (!direct) put_back(result, group.own, group.channels, positions, ahead, place, job.out);
    }
  }

  for (int n = 0; n < all->groups; ++n) {
    const Group<W>& group = all->group[n];
    for (int l = 0; !BACKWARD && group.pulled && l < LANES; ++l)
      if (group.member[l]) part.centres[group.channel + l] += group.centres[l];
    for (int k = 0; BACKWARD && k < group.passes; ++k) add_gradients(job, part, group.channel, group.pass[k]);
  }
}
