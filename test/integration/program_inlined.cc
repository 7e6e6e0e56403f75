// SPDX-License-Identifier: MIT
//
// program_inlined.cc - what templates and the standard library make of a few lines, for test_symbols.sh.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {
struct Counter {
    std::map<std::string, std::vector<int>> seen;

    void note(const std::string &word, int at) {
        if (word.empty()) {
            throw std::invalid_argument("no word");
        }
        seen[word].push_back(at);
    }

    template <class Function> void each(Function function) const {
        for (const auto &[word, places] : seen) {
            function(word, places.size());
        }
    }
};

template <int N> int tower(const std::vector<int> &numbers) {
    return numbers.size() > N ? numbers[N] + tower<N - 1>(numbers) : tower<N - 1>(numbers);
}

template <> int tower<0>(const std::vector<int> &numbers) {
    return numbers.empty() ? 0 : numbers.front();
}
} // namespace

class Shape {
  public:
    virtual ~Shape() = default;
    virtual double area() const = 0;
};

class Square : public Shape {
  public:
    explicit Square(double side) : side_(side) {
    }
    double area() const override {
        return side_ * side_;
    }

  private:
    double side_;
};

int main(int count, char **words) {
    Counter counter;
    std::vector<int> numbers;
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < count; i++) {
        counter.note(words[i], i);
        numbers.push_back(static_cast<int>(std::string(words[i]).size()));
        shapes.push_back(std::make_unique<Square>(i));
    }
    std::sort(numbers.begin(), numbers.end(), std::greater<int>());
    std::unordered_map<std::string, double> areas;
    std::ostringstream text;
    counter.each([&](const std::string &word, size_t times) { areas[word] += double(times); });
    std::function<double(const Shape &)> measure = [](const Shape &shape) { return shape.area(); };
    for (const auto &shape : shapes) {
        text << measure(*shape) << ' ';
    }
    std::cout << text.str() << tower<6>(numbers) << ' ' << areas.size() << '\n';
}
